"""The ClientApp: a message goes to the site's own process, its answer back. Nothing heavy is imported here."""

import os
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedce.config import load
from fedce.engines.doorway import ask_resident
from fedce.engines.flower.parcels import from_record, to_record
from fedce.errors import ConfigError


def client_app(config_file: Path) -> ClientApp:
    """The app of an experiment; the SuperNode's --node-config says which site this is, and where its images are."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        site, data = _who(context, config_file)
        home = Path(str(context.node_config.get("home") or Path.home() / ".fedce" / "sites" / site))
        parcel = from_record(message.content)
        # The parent is the SuperNode's executor, which ends with the SuperNode.
        return Message(to_record(ask_resident(config_file, site, data, home, parcel, os.getppid())), reply_to=message)

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
