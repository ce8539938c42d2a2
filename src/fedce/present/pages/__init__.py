"""From a template and values to one self-contained HTML page: no network, light and dark, prints well."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedce.base.words import printable


def page(template: str, *, script: str = "sort.js", connects: bool = False, **values: Any) -> bytes:
    """`script` is the only one that the page may run: its digest is in the page's policy.

    `connects`: it may also ask the server that it came from, which no page that opens from disk has.
    """
    text = (files(__name__) / "templates" / script).read_text("utf-8")
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return part(template, script=text, script_digest=digest, connects=connects, **values)


def part(template: str, **values: Any) -> bytes:
    """A piece of a page, such as one that a page fetches anew."""
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
    """Names and reasons come from sites: signs that turn the direction of a line, or that nobody sees, are escaped."""
    return printable(value, kept="\n\t") if type(value) is str else value
