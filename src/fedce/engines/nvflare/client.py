"""The part of a job that NVFlare's client runs: it passes a call to the site's Resident and returns the answer."""

from logging import getLogger
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from nvflare.collab import collab

from fedce.base.errors import ConfigError, EngineError
from fedce.base.files import private_folder
from fedce.engines.nvflare import settings
from fedce.site.wire import Parcel

if TYPE_CHECKING:
    from fedce.site.resident import Resident

KEPT_SECONDS = 600.0
"""Seconds after its end during which a call still counts as in hand: its answer may be on a slow line."""


class Hospital:
    """The published functions of a client's process, which lives as long as the job."""

    def __init__(self) -> None:
        self._resident: Resident | None = None
        self._lock = Lock()
        self._ended: dict[str, float | None] = {}

    @collab.publish  # type: ignore[untyped-decorator]
    def here(self) -> list[str]:
        """The calls that this process has in hand; an answer also shows that the process lives."""
        now = monotonic()
        for ticket, ended in list(self._ended.items()):
            if ended is not None and now - ended > KEPT_SECONDS:
                del self._ended[ticket]
        return list(self._ended)

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, ticket: str, parcel: bytes) -> bytes:
        client, workspace = str(collab.site_name), collab.workspace
        config_file = Path(workspace.get_app_config_dir(collab.fl_ctx.get_job_id())) / settings.EXPERIMENT
        self._ended[ticket] = None
        try:
            with self._lock:  # One call at a time: a site has one memory.
                if self._resident is None:
                    self._resident = resident(client, Path(workspace.get_site_config_dir()), config_file)
                return self._resident.answer(Parcel.from_bytes(parcel)).to_bytes()
        finally:
            self._ended[ticket] = monotonic()


def resident(client: str, local: Path, config_file: Path) -> "Resident":
    from fedce.base.config import load
    from fedce.federation.lines import versions
    from fedce.federation.plan import code_of
    from fedce.site.resident import Resident, at_hospital

    try:
        own = settings.load(local)
        site = own.site_of(client)
        if not own.data:
            raise ConfigError(f'{local / settings.FILE}: say where the images are, as data = "FOLDER"')
        config = load(config_file)
        for key, path in code_of(config).items():
            if path not in own.allow:
                raise ConfigError(f'{key} names code, {path}; if you trust it: allow = ["{path}"] in {settings.FILE}')
        return Resident(at_hospital(config, site, own.data), site, private_folder(own.home_of(site)), versions())
    except Exception:
        # An error's text may hold names of this machine, so it stays in this client's log.
        getLogger(__name__).exception("this site can't take part")
        raise EngineError("this site can't take part; its own log says why") from None
