"""An example for every command, at the end of its --help. A test runs each of them on tiny data."""

from collections.abc import Iterator

import click

EXAMPLES = {
    "": ("fedce run --scale tiny --out runs/first", "fedce report runs/first"),
    "plan": ("fedce plan data --out plan.toml",),
    "run": ("fedce run --data data --rounds 100 --out runs/ours",),
    "report": ("fedce report runs/ours",),
    "watch": ("fedce watch runs/ours --no-browser --port 8000",),
    "new": ("fedce new heart --sites north,south,west --server fl.example.org:8443",),
    "doctor": (
        "fedce doctor --data data",
        "fedce doctor experiment.toml --server fl.example.org:8443 --site north --data /data/north",
    ),
    "deploy": ("fedce deploy flower plan.toml --out app",),
    "status": ("fedce status runs/ours",),
    "runs": ("fedce runs",),
    "predict": ("fedce predict runs/ours new --out masks",),
    "evaluate": ("fedce evaluate runs/ours new-hospital",),
    "export": ("fedce export runs/ours --to bundle",),
    "data": ("fedce data inspect data",),
    "data inspect": ("fedce data inspect data",),
    "data prepare": ("fedce data prepare fundus --list", "fedce data prepare fundus --source downloads"),
    "allocate": ("fedce allocate runs/ours --budget 100000 --cap 40%",),
    "keys": ("fedce keys new ~/.fedce/sites/north/key.pem",),
    "keys new": ("fedce keys new ~/.fedce/sites/north/key.pem",),
    "keys show": ("fedce keys show ~/.fedce/sites/north/key.pem",),
    "keys rotate": ("fedce keys rotate ~/.fedce/sites/north/key.pem --site north --run 5f2c --out new-key.json",),
    "keys revoke": ("fedce keys revoke ~/.fedce/sites/north/key.pem --site north --run 5f2c --out revoked.json",),
    "keys replace": ("fedce keys replace runs/ours --site north --new PUBLIC-KEY",),
    "withdraw": ("fedce withdraw ~/.fedce/sites/north/key.pem --site north --run 5f2c --out withdrawal.json",),
    "track": ("fedce track runs/ours csv",),
    "ledger attest": ("fedce ledger attest runs/ours",),
    "ledger add": ("fedce ledger add runs/ours withdrawal.json",),
    "ledger": ("fedce ledger verify runs/ours",),
    "ledger verify": ("fedce ledger verify runs/ours",),
    "ledger show": ("fedce ledger show runs/ours",),
    "ledger audit": ("fedce ledger audit runs/ours --site north --data data",),
    "publish": ("fedce publish runs/ours --site north",),
    "compare": ("fedce compare --data data --algorithms fedavg,fedce --seeds 0,1",),
    "study": ("fedce study fairness --data data",),
    "value": ("fedce value runs/ours --method loo",),
}
"""Command to the lines of its example; a group of commands has one too."""


def commands_of(group: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """A command and all commands below it, each with its name as it is typed after 'fedce'."""
    yield name, group
    if isinstance(group, click.Group):
        for own, command in group.commands.items():
            yield from commands_of(command, f"{name} {own}".strip())


def show_examples(group: click.Group) -> None:
    """Let each command's --help end with its example."""
    for name, command in commands_of(group):
        if lines := EXAMPLES.get(name):
            # After \b click keeps the lines as they are.
            command.epilog = "\b\n" + "\n".join(["Example:", *(f"  {line}" for line in lines)])
