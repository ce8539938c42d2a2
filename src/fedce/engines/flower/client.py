"""The ClientApp: a message goes to the site's own process, its answer back. Nothing heavy is imported here."""

import os
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedce.engines.doorway import ask_resident
from fedce.engines.flower.parcels import from_record, to_record
from fedce.errors import ConfigError


def client_app(config_file: Path) -> ClientApp:
    """The app of an experiment; the SuperNode's --node-config says which site this is, and where its images are."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        site, data = _setting(context, "site"), _setting(context, "data")
        home = Path(str(context.node_config.get("home") or Path.home() / ".fedce" / "sites" / site))
        parcel = from_record(message.content)
        # The parent is the SuperNode's executor, which ends with the SuperNode.
        return Message(to_record(ask_resident(config_file, site, data, home, parcel, os.getppid())), reply_to=message)

    for kind in (app.query, app.train, app.evaluate):
        kind()(answer)
    return app


def _setting(context: Context, key: str) -> str:
    value = context.node_config.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"""start the SuperNode with --node-config "site='NAME' data='FOLDER'"; {key} is missing""")
    return value
