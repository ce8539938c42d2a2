"""The ClientApp: passes a message to the site's own process and returns the answer. Nothing heavy is imported here."""

import os
import traceback
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedce.base.config import load
from fedce.base.errors import ConfigError
from fedce.engines.doorway import ask_resident
from fedce.engines.flower.parcels import from_record, to_record


def client_app(config_file: Path) -> ClientApp:
    """The app of an experiment; the SuperNode's --node-config says which site this is, and where its images are."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        try:
            site, data = _who(context, config_file)
            home = Path(str(context.node_config.get("home") or Path.home() / ".fedce" / "sites" / site))
            # The parent is the SuperNode's executor, which ends with the SuperNode.
            found = ask_resident(config_file, site, data, home, from_record(message.content), os.getppid())
        except Exception as error:  # noqa: BLE001 (Flower sends an error's text to the server, and it may be private)
            traceback.print_exc()  # Goes into the SuperNode's own log.
            raise RuntimeError(f"{type(error).__name__}; see the log of the SuperNode") from None
        return Message(to_record(found), reply_to=message)

    for kind in (app.query, app.train, app.evaluate):
        kind()(answer)
    return app


def _who(context: Context, config_file: Path) -> tuple[str, str]:
    """The site's name and data."""
    site, data, part = (context.node_config.get(key) for key in ("site", "data", "partition-id"))
    if isinstance(site, str) and isinstance(data, str) and site and data:
        return site, data
    if isinstance(part, int):  # Flower's simulation: all images are on this machine.
        config = load(config_file)
        return sorted(config.engine.members)[part], config.data.source
    raise ConfigError("""start the SuperNode with --node-config "site='NAME' data='FOLDER'"; one of them is missing""")
