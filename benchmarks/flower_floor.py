"""The least that a round on Flower takes with six sites: ours without training, over an empty app.

Both run on a real SuperLink and six real SuperNodes of this machine, started alike. The empty app sends one number to
every node and waits for all answers, looking ten times a second, as our coordinator does. Ours is a federation whose
sites train nothing and answer with a tiny model; guard and ballots, which ask the sites once more, are off. Seconds
between the ends of two rounds; the two take turns.

    python -m benchmarks.flower_floor [--repeats 3]
"""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import numpy as np
from benchmarks.engines import N_SITES, ROOT, changes_of, write_sites
from benchmarks.figures import Figure, main

from fedce.base.config import load
from fedce.engines.flower.launch import QUIET, Federation, credential, run_here, write_app
from fedce.engines.launching import Programs
from fedce.federation.session import Observer
from fedce.record.folder import RunFolder

N_ROUNDS, LIMIT = 6, 600.0
SERVER = '''"""Sends one number to every node, round by round."""

import json
from pathlib import Path
from time import sleep, time

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < {n_sites}:
        sleep(0.1)
    ends = []
    for number in range({n_rounds}):
        content = RecordDict({{"number": ConfigRecord({{"number": number}})}})
        waiting = set(
            grid.push_messages(
                [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
            )
        )
        while waiting:
            waiting -= {{one.metadata.reply_to_message_id for one in grid.pull_messages(list(waiting))}}
            sleep(0.1)
        ends.append(time())
    out = Path({out!r})
    out.with_suffix(".part").write_text(json.dumps(ends))
    out.with_suffix(".part").rename(out)
'''
CLIENT = '''"""Answers with what it was sent."""

from flwr.app import Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def answer(message, context):
    return Message(message.content, reply_to=message)
'''


def between(ends: Sequence[float]) -> float:
    """The median round; the first one is left out, because the nodes fetch the app in it."""
    return median(np.diff(ends))


def empty(folder: Path) -> float:
    config, out = load(None, changes_of(folder / "data", N_ROUNDS)), folder / "ends.json"
    write_app(config, folder / "app", str(out), "")
    package = folder / "app" / "fedce_app"
    (package / "server_app.py").write_text(SERVER.format(n_sites=N_SITES, n_rounds=N_ROUNDS, out=str(out)))
    (package / "client_app.py").write_text(CLIENT)
    with Programs(folder / "logs", {**QUIET, **credential()}) as programs:
        made = Federation(programs, folder / "flower", [f"site{i + 1}" for i in range(N_SITES)], str(folder / "data"))
        made.start()
        made.submit(folder / "app")
        end = monotonic() + LIMIT
        while not out.exists():
            programs.check()
            assert monotonic() < end, programs.tail("superlink")
            sleep(0.2)
    return between(json.loads(out.read_text()))


def ours(folder: Path) -> float:
    changes = changes_of(folder / "data", N_ROUNDS) | {"model.channels": [4, 8], "guard": "off", "worth.every": 0}
    config = load(None, {"recipe": "small", "engine.name": "flower", **changes})
    run_here(config, folder / "run", Observer(), "benchmark")
    return between([done.time for done in RunFolder(folder / "run").rounds()])


def measure(repeats: int) -> list[Figure]:
    os.environ["PYTHONPATH"] = str(ROOT)  # The apps import the algorithm without training from here.
    found: dict[str, list[float]] = {"empty": [], "ours": []}
    for _ in range(repeats):
        for what, run in (("empty", empty), ("ours", ours)):
            with tempfile.TemporaryDirectory() as name:
                write_sites(Path(name) / "data")
                found[what].append(run(Path(name)))
    more = [own - bare for own, bare in zip(found["ours"], found["empty"], strict=True)]
    return [
        Figure("a round of an empty app, six sites", found["empty"], "s"),
        Figure("a round of ours without training", found["ours"], "s"),
        Figure("ours less the empty app", more, "s", at_most=1.0),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=3)
