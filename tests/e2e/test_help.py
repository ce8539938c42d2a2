"""Every command's --help ends with an example, and the example works; the shell completes commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fedce.cli import main
from fedce.cli.examples import EXAMPLES, commands_of
from support import write_site

COMMANDS = dict(commands_of(main))
FIRST = ("", "plan", "run", "keys new")
"""Examples that make what others use; the run is the only one that they share."""
SMALL = "--workers 1 --set model.channels=[4,8]"
ADDED = {
    "run": f"--rounds 3 {SMALL}",
    "compare": f"--rounds 1 {SMALL}",
    "study": f"--rounds 1 --methods fedavg,fedce {SMALL}",
    "value": "--workers 1",
    # After three rounds nothing is sure.
    "allocate": "--rule contribution --yes",
}
"""What the test adds to an example, by its command, so that it ends within a second or two."""
PARSED_ONLY = {
    "fedce watch runs/ours --no-browser --port 8000": "serves a page until Ctrl-C (tests/e2e/test_watch.py)",
    "fedce doctor experiment.toml --server fl.example.org:8443 --site north --data /data/north": (
        "needs the coordinator's server (tests/e2e/test_new.py)"
    ),
    "fedce keys replace runs/ours --site north --new PUBLIC-KEY": "needs a federation (tests/unit/test_membership.py)",
    "fedce ledger add runs/ours withdrawal.json": "needs a federation (tests/unit/test_membership.py)",
    "fedce data prepare fundus --source downloads": "needs the public data sets (tests/unit/test_prepare_fundus.py)",
}
"""Examples that are not run, only parsed, and where the command is tested."""


def example_of(command: click.Command, name: str) -> list[str]:
    """The lines after the last 'Example:' of a command's help."""
    lines = command.get_help(click.Context(command, info_name=name or "fedce")).rstrip().splitlines()
    assert "Example:" in [line.strip() for line in lines], f"'fedce {name}' has no example: add it to cli/examples.py"
    last = max(i for i, line in enumerate(lines) if line.strip() == "Example:")
    return [line.strip() for line in lines[last + 1 :]]


@pytest.fixture(scope="module")
def world(tmp_path_factory, fedce) -> Path:
    """A folder with data, and with what the first examples make from it."""
    folder = tmp_path_factory.mktemp("world")
    for site in ("north", "south", "west"):
        write_site(folder / "data", site, n=12)
    shutil.copytree(write_site(folder, "new-hospital", n=4) / "images", folder / "new")
    for name in FIRST:
        for line in example_of(COMMANDS[name], name):
            result = run(fedce, line, folder)
            assert result.exit_code == 0, f"{line}: {result.output}"
    return folder


def run(fedce, line: str, folder: Path):
    program, command, *arguments = shlex.split(line)
    assert program == "fedce"
    added = shlex.split(ADDED.get(command, ""))
    return fedce(command, *(word.replace("~", str(folder / "home")) for word in arguments), *added, cwd=folder)


def test_every_command_has_an_example_and_every_example_a_command():
    assert EXAMPLES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        lines = example_of(command, name)
        assert tuple(lines) == EXAMPLES[name]
        assert all(len(line) <= 100 for line in lines)
        if name and not isinstance(command, click.Group):
            assert all(line.startswith(f"fedce {name} ") or line == f"fedce {name}" for line in lines)


LINES = sorted({line for name, lines in EXAMPLES.items() if name not in FIRST for line in lines})
MADE_BEFORE = {line for name in FIRST for line in EXAMPLES[name]}


def test_what_is_not_run_is_among_the_examples():
    assert PARSED_ONLY.keys() <= set(LINES)


@pytest.mark.parametrize("line", [line for line in LINES if line not in {*PARSED_ONLY, *MADE_BEFORE}])
def test_the_examples_work(line: str, world: Path, fedce):
    result = run(fedce, line, world)
    assert result.exit_code == 0, f"{line}: {result.output}"


@pytest.mark.parametrize("line", PARSED_ONLY)
def test_the_other_examples_can_be_parsed(line: str):
    words = shlex.split(line)[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    context = command.make_context(command.name, words)
    assert context.params


PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
FEDCE = f"#!{sys.executable}\nfrom fedce.cli import main\nmain(prog_name='fedce')\n"


def test_the_page_names_every_command():
    assert set(re.findall(r"`fedce ([a-z]+)", PAGE)) == set(main.commands)


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Where the shell finds fedce, as after an installation."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "fedce").write_text(FEDCE)
    (folder / "fedce").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_gives_the_shell_its_completion(shell: str, environment: dict[str, str]):
    (line,) = [line for line in PAGE.splitlines() if f"_FEDCE_COMPLETE={shell}_source fedce" in line]
    call = re.search(rf"_FEDCE_COMPLETE={shell}_source fedce", line)[0]
    done = subprocess.run(["bash", "-c", call], env=environment, capture_output=True, text=True, check=True)
    assert f"_FEDCE_COMPLETE={shell}_complete" in done.stdout
    assert "fedce" in done.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("fedce ru", ["run", "runs"]), ("fedce ledger ", ["add", "attest", "audit", "show", "verify"])],
)
def test_bash_completes_commands(typed: str, expected: list[str], environment: dict[str, str]):
    """The function that the documented line defines, called as bash calls it when Tab is pressed."""
    (line,) = [line for line in PAGE.splitlines() if "bash_source" in line]
    words = typed.split(" ")
    script = f"""
        {line.partition("#")[0]}
        COMP_WORDS=({" ".join(shlex.quote(word) for word in words)})
        COMP_CWORD={len(words) - 1}
        _fedce_completion fedce
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == expected, done.stderr
