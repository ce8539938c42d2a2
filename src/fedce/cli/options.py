"""Arguments and options that several commands share, and what they mean."""

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from fedce.base.places import STORE

if TYPE_CHECKING:
    from fedce.base.config import Config

Command = TypeVar("Command", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
AS_IN_RUN = "As in fedce run."
STARTING = "starting (importing torch and MONAI)"


class Option(Protocol):
    """Adds an option to a command."""

    def __call__(self, command: Command, /) -> Command: ...


run_argument = click.argument("run_folder", metavar="RUN", type=PATH)
config_argument = click.argument("config_file", metavar="[CONFIG.toml]", required=False, type=PATH)
trust_code_option = click.option(
    "--trust-code", is_flag=True, help="Run the Python code that the run names: its network, loss, format or metrics."
)
store_option = click.option("--store", type=PATH, default=STORE, help="Where trainings are kept.")
trainings_option = click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Trainings at a time; 0: one a core.",
)


def data_option(help: str = AS_IN_RUN, name: str = "data") -> Option:
    return click.option("--data", name, metavar="NAME|DIR", help=help)


def scale_option(help: str = AS_IN_RUN) -> Option:
    return click.option("--scale", metavar="SCALE", help=help)


def rounds_option(help: str = AS_IN_RUN) -> Option:
    return click.option("--rounds", type=int, metavar="N", help=help)


def set_option(help: str = AS_IN_RUN) -> Option:
    return click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help=help)


def out_option(help: str = AS_IN_RUN, metavar: str | None = "DIR", *, required: bool = False) -> Option:
    return click.option("--out", type=PATH, metavar=metavar, required=required, help=help)


def replace_option(help: str) -> Option:
    return click.option("--replace", is_flag=True, help=help)


def model_options(*, in_use: bool) -> Option:
    """Add options that choose one of a run's models; the command gets them as `which`.

    With `in_use` the command also runs the model on images: --adapt and --device.
    """
    options = [
        click.option("--site", metavar="NAME", help="Use this site's own model, if each site has one."),
        click.option("--best", is_flag=True, help="Use the common model of the best round, not of the last round."),
    ]
    if in_use:
        adapt = "Estimate batch-norm statistics from these images, without masks; for a new hospital."
        device = "cpu, cuda, cuda:1 or mps; auto (default): a GPU if there is one."
        options += [
            click.option("--adapt", is_flag=True, help=adapt),
            click.option("--device", metavar="NAME", default="auto", help=device),
        ]
    options.append(trust_code_option)

    def add(command: Command, /) -> Command:
        @wraps(command)
        def called(*, site: str | None, best: bool, trust_code: bool, **given: Any) -> Any:
            from fedce.questions.loading import Which

            chosen = {name: given.pop(name) for name in ("adapt", "device") if name in given}
            chosen = chosen or {"device": "cpu"}
            return command(which=Which(site, best, trust_code=trust_code, **chosen), **given)

        for option in reversed(options):
            called = option(called)
        return cast(Command, called)

    return add


def json_option(what: str) -> Option:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON, and nothing else.")


@dataclass(frozen=True)
class Experiment:
    """An experiment on the command line: a file, and values that replace the file's keys."""

    file: Path | None
    named: Mapping[str, Any]
    """Keys that have an option of their own; None if the option was left out."""
    assignments: Sequence[str] = ()

    @property
    def changes(self) -> dict[str, Any]:
        """The values that the command line sets, by key."""
        return changes_of(self.named, self.assignments)

    def config(self, **changes: Any) -> "Config":
        """The experiment; `changes` are values for keys that neither the file nor the command line sets."""
        from fedce.base.config import load

        return load(self.file, changes | self.changes)

    @property
    def is_planned(self) -> bool:
        """Whether the file or the command line asks for a plan."""
        from fedce.base.config import written
        from fedce.base.recipes import PLAN

        return written(self.file, self.changes).get("recipe") == PLAN

    def unplanned(self) -> "Config":
        """The experiment for a command that only looks at the data: nothing is planned, whatever the recipe."""
        from fedce.base.config import load
        from fedce.base.recipes import SMALL

        return load(self.file, {**self.changes, "recipe": SMALL}) if self.is_planned else self.config()

    def planned(self, notice: Callable[[str], None]) -> "Config":
        """The experiment; missing keys are planned from the data if there is no file, or if its recipe is "plan"."""
        from fedce.base.config import written
        from fedce.base.recipes import PLAN

        tree = written(self.file, self.changes)
        if self.file is None:
            tree.setdefault("recipe", PLAN)
        if tree.get("recipe") != PLAN:
            return self.config()
        from fedce.learning.planning import planned

        found = planned(tree, str(self.file) if self.file else None, notice)
        if found.chosen:
            notice(f"{found.line} ('fedce plan' gives the reasons)")
        return found.config


KEYS = {"data": "data.source", "scale": "data.scale", "rounds": "rounds"}


def experiment_options(**options: Option) -> Option:
    """Add [CONFIG.toml], --data, --set and these options; the command gets all of them as one `experiment`."""

    def add(command: Command, /) -> Command:
        @wraps(command)
        def called(*, config_file: Path | None, assignments: tuple[str, ...], **given: Any) -> Any:
            named = {KEYS[name]: given.pop(name) for name in ("data", *options)}
            return command(experiment=Experiment(config_file, named, assignments), **given)

        for option in (set_option(), *reversed(options.values()), data_option(), config_argument):
            called = option(called)
        return cast(Command, called)

    return add


def changes_of(named: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Keys of the experiment file that the command line sets, by their own options and by --set."""
    from fedce.base.config import parse_assignment

    given = {key: value for key, value in named.items() if value is not None}
    return given | dict(parse_assignment(text) for text in assignments)


def command_line() -> str:
    """The command as it was called, for the record."""
    return shlex.join(["fedce", *sys.argv[1:]])


def echo_json(value: Any, **how: Any) -> None:
    click.echo(json.dumps(value, indent=2, **how))
