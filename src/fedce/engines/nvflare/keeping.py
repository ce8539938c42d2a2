"""Keep a job running until its run is finished: `python -m fedce.engines.nvflare.keeping JOB --kit ADMIN_KIT`.

NVFlare ends a job when its server, or the job's process at one client, dies; and a restarted client does not come back
into a job. So the job is submitted again: at once after its end, or between two rounds for a client that came back.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import NameOID

from fedce.base.config import load
from fedce.base.errors import ConfigError, EngineError, FedceError
from fedce.base.files import read_json
from fedce.base.tables import EngineConfig
from fedce.engines.launching import need
from fedce.engines.nvflare.settings import EXPERIMENT, NODES, PAUSE
from fedce.record.connections import listed

LOOK_SECONDS = 3.0
CONNECT_SECONDS = 10.0
MAX_FRUITLESS = 3
"""Give up after this many jobs in a row that ended early and without a new round."""
EARLY_SECONDS = 600.0
N_LOOKS = 3
"""A state of a job or client counts once it was seen this many times in a row."""
Tell = Callable[[str], None]


def keep(job: Path, kit: Path, tell: Tell = lambda message: None) -> None:
    """Submit the job, again and again, until its run is finished."""
    need("nvflare", "nvflare")
    if not (config_file := job / "app" / "config" / EXPERIMENT).exists():
        raise ConfigError(f"{job} is not a job of fedce; 'fedce deploy nvflare CONFIG.toml --out DIR' writes one")
    if not (kit / "startup" / "fed_admin.json").exists():
        raise ConfigError(
            f"{kit} is not the startup kit of an NVFlare administrator (startup/fed_admin.json is missing)"
        )
    engine, name = load(config_file).engine, str(read_json(job / "meta.json")["name"])
    seen, job_id, looked = Seen(), "", False
    while True:
        # After a lost connection the job is looked at again: it may have gone on meanwhile.
        with suppress(ConnectionError), _session(kit, tell) as session:
            if not looked and (job_id := _running(session, name)):
                tell(f"following {job_id}, which was submitted before")
            looked = True
            if not job_id:
                _gather(session, engine, tell)
                job_id = str(_ask(session.submit_job, str(job.resolve())))
                seen.begin()
                tell(f"submitted as {job_id}")
            status = _follow(session, job_id, seen, tell)
            if status == "FINISHED:COMPLETED":
                tell(f"done: the run is finished; at the server it is the folder {name!r} among its runs")
                return
            tell(f"the job ended as {status}")
            if seen.is_hopeless():
                raise EngineError(
                    f"{MAX_FRUITLESS} jobs in a row ended without a round; see 'nvflare job logs {job_id}'"
                )
            job_id = ""


@dataclass
class Seen:
    """What repeated looks at a federation have shown."""

    round_no: int = -1
    n_fruitless: int = 0
    began: float = 0.0
    n_dead: int = 0
    """Looks in a row at a job that NVFlare lists and does not run."""
    n_without_job: dict[str, int] = field(default_factory=dict)
    """Client to the number of looks in a row at which it was connected and had no part in the job."""
    said: str = ""
    """The coordinator's last line that was passed on."""
    paused_for: set[str] = field(default_factory=set)
    """Clients for which a job was ended; no job is ended for them again until they have been in one."""

    def begin(self) -> None:
        self.n_fruitless += 1
        self.began = monotonic()
        self.n_dead, self.n_without_job = 0, {}

    def progress(self, round_no: int) -> None:
        if round_no > self.round_no:
            self.round_no, self.n_fruitless = round_no, 0

    def is_hopeless(self) -> bool:
        if monotonic() - self.began > EARLY_SECONDS:
            self.n_fruitless = 0
        return self.n_fruitless >= MAX_FRUITLESS

    def returned(self, jobs_by_client: dict[str, set[str]], job_id: str) -> set[str]:
        """Clients that could take part again."""
        within = {client for client, jobs in jobs_by_client.items() if job_id in jobs}
        self.paused_for -= within
        outside = jobs_by_client.keys() - within - self.paused_for
        self.n_without_job = {client: self.n_without_job.get(client, 0) + 1 for client in outside}
        return {client for client, n in self.n_without_job.items() if n >= N_LOOKS}


def _follow(session: Any, job_id: str, seen: Seen, tell: Tell) -> str:
    """Wait until the job ends; returns how it ended."""
    while True:
        sleep(LOOK_SECONDS)
        status = str(_ask(session.get_job_status, job_id))
        if status.startswith("FINISHED"):
            return status
        answer = _command(session, job_id, NODES)
        # A restarted server lists its old job as running for ever.
        seen.n_dead = seen.n_dead + 1 if answer == "not running" and status == "RUNNING" else 0
        if seen.n_dead >= N_LOOKS:
            with suppress(Exception):
                session.abort_job(job_id)
            return "not running any more"
        if not isinstance(answer, dict):
            continue
        seen.progress(int(answer["round"]))
        if (said := str(answer.get("said") or "")) and said != seen.said:
            seen.said = said
            tell(said)
        if not answer["paused"] and (back := seen.returned(_jobs_by_client(session), job_id)):
            tell(f"{', '.join(sorted(back))} can take part again: the job is submitted again after this round")
            seen.paused_for |= back
            _command(session, job_id, PAUSE)


def _command(session: Any, job_id: str, topic: str) -> Any:
    """The coordinator's answer; or a text if it does not answer, because it has not started yet or is ending."""
    from nvflare.fuel.flare_api.api_spec import JobNotRunning

    try:
        return session.do_app_command(job_id, topic, {})
    except JobNotRunning:
        return "not running"
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 (NVFlare has an error of its own for each reason)
        return str(error)


def _jobs_by_client(session: Any) -> dict[str, set[str]]:
    """The connected clients, and the jobs of each."""
    from nvflare.fuel.flare_api.api_spec import NoClientsAvailable

    found: dict[str, set[str]] = {}
    with suppress(NoClientsAvailable):
        for entry in _ask(session.get_client_job_status) or []:
            found.setdefault(str(entry["client_name"]), set()).add(str(entry.get("job_id")))
    return found


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    from nvflare.fuel.flare_api.api_spec import AuthenticationError, NoClientsAvailable, SessionClosed

    try:
        return function(*arguments)
    except (ConnectionError, NoClientsAvailable):
        raise
    except (SessionClosed, AuthenticationError) as error:  # For example after a restart of the server.
        raise ConnectionError(str(error)) from None
    except Exception as error:  # noqa: BLE001 (NVFlare has an error of its own for each reason)
        raise EngineError(f"NVFlare refuses: {error}") from None


def _running(session: Any, name: str) -> str:
    """The id of a job of this name that still runs: submitted elsewhere, or before this program was killed."""
    for entry in _ask(session.list_jobs, False, None, None, name) or []:
        if entry.get("job_name") == name and not str(entry.get("status")).startswith("FINISHED"):
            return str(entry["job_id"])
    return ""


def _gather(session: Any, engine: EngineConfig, tell: Tell) -> None:
    """Wait for the clients, because one that connects later is not in the job."""
    wanted, needed = len(engine.members), engine.min_sites
    end, told = monotonic() + engine.join_seconds, ""
    while True:
        here = {str(client.name) for client in _ask(session.get_connected_client_list)}
        if len(here) >= needed and (len(here) >= wanted or monotonic() >= end):
            return
        if (text := _awaited(here, engine.members, max(wanted, needed))) != told:
            tell(text)
        told = text
        sleep(1.0)


def _awaited(here: Set[str], members: Iterable[str], wanted: int) -> str:
    """For which clients the job waits; names are known only if clients have the names of their sites."""
    missing = sorted(set(members) - here) if here <= set(members) else []
    names = f", not connected: {listed(missing)}" if missing else ""
    return f"waiting for clients: {len(here)} of {wanted} are connected{names}"


@contextmanager
def _session(kit: Path, tell: Tell) -> Iterator[Any]:
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    certificate = load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    user = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    told = False
    while True:
        try:
            session = new_secure_session(user, str(kit.resolve()), timeout=CONNECT_SECONDS)
            break
        except Exception as error:  # noqa: BLE001 (NVFlare has an error of its own for each reason)
            if not told:
                tell(f"the server can't be reached yet ({error}); trying again")
            told = True
            sleep(1.0)
    try:
        yield session
    finally:
        with suppress(Exception):
            session.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fedce.engines.nvflare.keeping", description=__doc__)
    parser.add_argument("job", type=Path, help="what 'fedce deploy nvflare' wrote")
    parser.add_argument("--kit", type=Path, required=True, help="the startup kit of an administrator")
    given = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # NVFlare logs every attempt to reach an absent server.
    try:
        keep(given.job, given.kit, lambda message: print(message, flush=True))  # noqa: T201 (a command)
    except FedceError as error:
        print(f"fedce: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
