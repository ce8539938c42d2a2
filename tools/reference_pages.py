"""The reference of public Python names and of commands, as Markdown written from the code itself."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import pairwise
from textwrap import dedent
from typing import Any

import click

import fedce
from fedce.cli import main
from fedce.core.algorithm import Algorithm

WIDTH = 100
NEW_LINE = "\n"


def python_page() -> str:
    """Every name in `fedce.__all__` with its signature and its docstring."""
    lines = [
        "# Python",
        "",
        dedented(fedce),
        "",
        "These names are public; everything else may change without notice.",
        "",
    ]
    for name in fedce.__all__:
        if not name.startswith("__"):
            lines += _entry(name, getattr(fedce, name))
    return "\n".join(lines)


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield from (
        f"## fedce.{name}",
        "",
        "```python",
        signature_of(f"fedce.{name}", thing),
        "```",
        "",
        dedented(thing),
        "",
    )
    if inspect.isclass(thing):
        yield from (f"- {line}" for line in [*_fields(thing), *_members(thing)])
        yield ""


def signature_of(name: str, thing: Any) -> str:
    """The call, without the modules of its types and what only checks them; one argument a line if it is long."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):  # Exceptions and other classes that are written in C have none.
        return name
    arguments = [one.replace(annotation=_bare(one.annotation)) for one in signature.parameters.values()]
    returns = inspect.Signature.empty if inspect.isclass(thing) else _bare(signature.return_annotation)
    shown = inspect.Signature(arguments, return_annotation=returns)
    whole = f"{name}{_plain(str(shown))}"
    if len(whole) <= WIDTH:
        return whole
    after = "" if returns is inspect.Signature.empty else f" -> {_plain(inspect.formatannotation(returns))}"
    lines = [f"    {_plain(str(one))}," for one in arguments]
    by_name = [i for i, one in enumerate(arguments) if one.kind is inspect.Parameter.KEYWORD_ONLY]
    if by_name and not any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in arguments):
        lines.insert(by_name[0], "    *,")
    return NEW_LINE.join([f"{name}(", *lines, f"){after}"])


def _bare(annotation: Any) -> Any:
    """A type without the conditions that are checked."""
    return getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation


def _plain(text: str) -> str:
    """A signature without the modules of its types, and without quotes around a type."""
    return re.sub(r"'([A-Z]\w*)'", r"\1", re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text))


def dedented(thing: Any) -> str:
    """The docstring, in which examples are blocks of code."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"(?:^>>> .*(?:\n(?!\n).*)*)", lambda found: f"```python\n{found[0]}\n```", text, flags=re.M)


def _fields(thing: type) -> Iterator[str]:
    """The fields of a dataclass, each with the docstring below it."""
    if not is_dataclass(thing):
        return
    notes = {name: note for kind in reversed(thing.__mro__) for name, note in _docstrings(kind).items()}
    for one in fields(thing):
        if not one.name.startswith("_"):
            yield f"`{one.name}`" + (f": {notes[one.name]}" if one.name in notes else "")


def _docstrings(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError):
        return {}
    return {
        before.target.id: " ".join(str(after.value.value).split())
        for before, after in pairwise(getattr(body, "body", []))
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def _members(thing: type) -> Iterator[str]:
    """Public methods and properties that have a docstring. An algorithm's methods are for its own authors."""
    for name, member in {} if issubclass(thing, Algorithm) else sorted(vars(thing).items()):
        member = getattr(member, "__func__", member)
        doc = inspect.getdoc(member)
        if name.startswith("_") or not doc or not (inspect.isfunction(member) or _is_property(member)):
            continue
        shown = name if _is_property(member) else signature_of(name, member)
        yield f"`{shown if len(shown) <= WIDTH else name}`: {' '.join(doc.split(NEW_LINE * 2)[0].split())}"


def _is_property(member: Any) -> bool:
    return isinstance(member, property | cached_property)


def commands_page() -> str:
    """The help of every command."""
    lines = ["# Commands", "", "What `fedce COMMAND --help` prints, for every command.", ""]
    for name, command in _commands("fedce", main):
        context = click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _commands(f"{name} {child}", command.commands[child])
