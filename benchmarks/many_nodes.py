"""Hundreds of sites over Flower's protocol: what a round costs, and what ten thousand would need.

A SuperLink, our ServerApp with the real coordinator, and N sites that draw 20 for each round. The sites are cheap
(benchmarks/cheap.py) and import no torch; they sit in one process, each behind its own connection by the code
of Flower's SuperNode: registered, signed, with its own heartbeat, and looking for mail every three seconds, as a
SuperNode does. Only the SuperNode's further processes are missing, of which a machine holds few.

CPU seconds of the SuperLink and of the ServerApp between two rounds are compared with a cost model of two numbers, for
each site that is connected for a second, and for each answer. It is fitted to the smaller federations and tried on the
largest.

    python -m benchmarks.many_nodes [--repeats 1]
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import psutil
from benchmarks.cheap import CheapSite
from benchmarks.figures import Figure, main
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedce.algorithms import FedCE
from fedce.base.config import parse
from fedce.base.identity import Identity
from fedce.core.messages import Member
from fedce.core.params import Entry, Layout
from fedce.engines.flower.parcels import from_record, to_record
from fedce.site.wire import Hello, MemberForm, Parcel, Signed, TaskForm, kind_of, reply_form, task_from

N_SITES = (40, 100, 200)
N_DRAWN, N_ROUNDS = 20, 8
LOOK_SECONDS = 3.0
"""How often a SuperNode looks for mail."""
LIMIT = 900.0
CHANNELS = [16, 32, 64]
VERSIONS = {name: version(name) for name in ("fedce", "numpy")}


def name_of(i: int) -> str:
    return f"s{i:05d}"


class Resident:
    """A cheap site that speaks fedce's protocol."""

    def __init__(self, i: int) -> None:
        self.name, self.identity = name_of(i), Identity(Ed25519PrivateKey.generate())
        self.algorithm, self.memory = FedCE(), None
        self.site: CheapSite | None = None
        self.member = Member(self.name, 40, 10, 10, (3, 32, 32), {"all": (255,)}, f"{i:064x}")

    def answer(self, parcel: Parcel) -> Parcel:
        if kind_of(parcel.about) == "hello":
            hello = Hello.read(parcel.about)
            about = MemberForm(
                **asdict(self.member), run=hello.run, nonce=hello.nonce, versions=VERSIONS, key=self.identity.public
            )
            return self._signed(about.model_dump_json())
        form = TaskForm.read(parcel.about)
        size = parcel.arrays["params"].size
        task = task_from(form, parcel.arrays, Layout((Entry("all", (size,), "trainable"),)))
        if self.site is None:
            wanted = np.random.default_rng(int(self.name[1:])).normal(0, 1, size).astype(np.float32)
            self.site = CheapSite(self.name, wanted, 0)
        if task.action == "evaluate":
            reply = self.algorithm.evaluate(self.site, task, self.memory)
        else:
            reply, self.memory = self.algorithm.local(self.site, task, self.memory)
        arrays = {} if reply.params is None else {"params": reply.params.vector}
        return self._signed(reply_form(reply, form.run, task).model_dump_json(), arrays)

    def _signed(self, content: str, arrays: dict[str, np.ndarray] | None = None) -> Parcel:
        return Parcel(Signed(content=content, signature=self.identity.sign(content)).model_dump_json(), arrays or {})


def serve(address: str, n: int) -> None:
    """N sites in this process, until it is ended."""
    from flwr.supernode.fleet_http_connection import http_request_response

    with ExitStack() as stack, ThreadPoolExecutor(16) as pool:
        connect = [http_request_response(address, insecure=True) for _ in range(n)]
        posts = list(pool.map(stack.enter_context, connect))
        residents = [Resident(i) for i in range(n)]
        due = [monotonic() + LOOK_SECONDS * i / n for i in range(n)]  # Spread, as with sites that start by themselves.
        assert "torch" not in sys.modules
        while True:
            for i in np.argsort(due):
                sleep(max(0.0, due[i] - monotonic()))
                due[i] = max(due[i] + LOOK_SECONDS, monotonic())
                pool.submit(look, posts[i], residents[i])


def look(post: Sequence[Callable[..., object]], resident: Resident) -> None:
    """What a SuperNode and its ClientApp do with one message, if there is one."""
    from flwr.app import Message
    from flwr.supercore.inflatable import inflatable_object as objects
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects

    _, receive, send, _, _, pull, push, confirm = post
    if (received := receive()) is None:
        return
    about, tree = received
    run = about.metadata.run_id
    message = pull_and_inflate_object_from_tree(
        tree, lambda one: pull(run, one), lambda one: confirm(run, one), return_type=Message
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    reply = Message(to_record(resident.answer(from_record(message.content))), reply_to=message)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    contents = objects.get_all_nested_objects(reply)
    wanted, session = send(reply, objects.get_object_tree(reply), 0.1)
    push_objects(contents, lambda one, content: push(run, session, one, content), object_ids_to_push=wanted)


@dataclass(frozen=True)
class Cost:
    """One federation."""

    n: int
    seconds: float
    """Of the measured rounds together."""
    cpu: float
    """CPU seconds of the SuperLink, the ServerApp and what they started, in that time."""
    memory: float
    """What the SuperLink held at the end, MB."""
    rounds: int


def federation(n: int) -> Cost:
    from fedce.engines.flower.launch import QUIET, Federation, credential, write_app
    from fedce.engines.launching import Programs
    from fedce.record.folder import OUTCOME, RunFolder

    members = {name_of(i): "" for i in range(n)}
    config = parse(
        {
            "data": {"source": "fundus6", "scale": "tiny"},
            "model": {"channels": CHANNELS, "norm": "instance"},  # No statistics, which a cheap site can't have.
            "engine": {"name": "flower", "members": members, "join_seconds": LIMIT},
            "rounds": N_ROUNDS,
            "sites_per_round": N_DRAWN,
            "worth": {"every": 0},
        }
    )
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "run"
        write_app(config, folder / "app", str(out), "benchmark")
        with Programs(folder / "logs", {**QUIET, **credential()}) as programs:
            # The nodes import this file in an environment of Flower's.
            programs.environment["PYTHONPATH"] += os.pathsep + str(Path.cwd())
            made = Federation(programs, folder, [], "")
            made.start_superlink()
            made.submit(folder / "app")
            address = f"127.0.0.1:{made.port_for_nodes}"
            programs.start("nodes", [sys.executable, "-m", "benchmarks.many_nodes", "--serve", address, str(n)])
            superlink = psutil.Process(programs.running["superlink"].pid)
            start: tuple[float, float] | None = None
            end, last = monotonic() + LIMIT, (0.0, 0.0)
            n_done = 0
            outcome = RunFolder(out).engine_folder / OUTCOME
            while not outcome.exists():
                programs.check()
                assert monotonic() < end, programs.tail("superlink") + programs.tail("nodes")
                done = len(RunFolder(out).rounds()) if (out / "ledger.jsonl").exists() else 0
                if done != n_done:
                    n_done, last = done, (monotonic(), cpu_of(superlink))
                    start = start or last
                sleep(0.1)
            assert start is not None, outcome.read_text()
            assert n_done == N_ROUNDS, outcome.read_text()
            return Cost(n, last[0] - start[0], last[1] - start[1], superlink.memory_info().rss / 2**20, N_ROUNDS - 1)


def cpu_of(superlink: psutil.Process) -> float:
    """CPU seconds of a process and all that it started, as far as they still run."""
    used = 0.0
    for process in (superlink, *superlink.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def measure(repeats: int) -> list[Figure]:
    runs = [[federation(n) for n in N_SITES] for _ in range(repeats)]
    found: dict[str, list[float]] = {}
    for costs in runs:
        *fitted, largest = costs
        # CPU seconds = a * (sites x seconds connected) + b * answers.
        known = np.array([[one.n * one.seconds, one.rounds * N_DRAWN] for one in fitted])
        (a, b), *_ = np.linalg.lstsq(known, np.array([one.cpu for one in fitted]), rcond=None)
        said = a * largest.n * largest.seconds + b * largest.rounds * N_DRAWN
        for one in costs:
            found.setdefault(f"{one.n} sites, {N_DRAWN} drawn: a round|s", []).append(one.seconds / one.rounds)
            found.setdefault(f"{one.n} sites: SuperLink and ServerApp, cores in use|cores", []).append(
                one.cpu / one.seconds
            )
            found.setdefault(f"{one.n} sites: memory of the SuperLink|MB", []).append(one.memory)
        found.setdefault("cost model: CPU ms for a connected site in a second|ms", []).append(1e3 * a)
        found.setdefault("cost model: CPU ms for an answer|ms", []).append(1e3 * b)
        found.setdefault(f"cost model: relative error at {largest.n} sites|x", []).append(abs(said / largest.cpu - 1))
        found.setdefault("cost model: cores that 10,000 connected sites keep busy|cores", []).append(1e4 * a)
    return [Figure(what.partition("|")[0], values, what.partition("|")[2]) for what, values in found.items()]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(sys.argv[-2], int(sys.argv[-1]))
    else:
        main(__doc__, measure, repeats=1)
