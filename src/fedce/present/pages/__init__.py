"""Makes one self-contained HTML page from a template and values: no network, light and dark, prints well."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedce.base.words import printable


def page(template: str, *, script: str = "sort.js", connects: bool = False, **values: Any) -> bytes:
    """A page. `script` is the only script that it may run, after the one that fits tables: their digest is in the
    page's policy.

    With `connects`, the page may also send requests to its own server; a page that opens from disk has no server.
    """
    text = "\n".join((files(__name__) / "templates" / name).read_text("utf-8") for name in ("tables.js", script))
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return part(template, script=text, script_digest=digest, connects=connects, **values)


def part(template: str, **values: Any) -> bytes:
    """A part of a page, such as one that a page fetches again."""
    return _environment().get_template(template).render(**values).encode()


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__name__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """Escape invisible characters and those that change the direction of text: sites may have sent them."""
    return printable(value, kept="\n\t") if type(value) is str else value
