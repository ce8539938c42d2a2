"""From a template and values to one self-contained HTML page: no network, light and dark, prints well."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

SCRIPT = (files("fedce.report") / "sort.js").read_text("utf-8")
"""The only script that a page may run: its digest is in the page's policy."""


def page(template: str, **values: Any) -> bytes:
    environment = Environment(
        loader=PackageLoader("fedce", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    digest = b64encode(sha256(SCRIPT.encode()).digest()).decode()
    return environment.get_template(template).render(script=SCRIPT, script_digest=digest, **values).encode()
