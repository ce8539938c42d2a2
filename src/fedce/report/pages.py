"""From a template and values to one self-contained HTML page: no network, light and dark, prints well."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def page(template: str, **values: Any) -> bytes:
    environment = Environment(
        loader=PackageLoader("fedce", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values).encode()
