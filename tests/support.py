"""Small stand-ins: models of a few numbers, and sites whose answers are known."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image

from fedce.base.identity import Identity, coordinator
from fedce.base.ranges import N_REPLICATES
from fedce.core.algorithm import State
from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.params import Entry, Layout, Params, Stays, part_of, shared_layout
from fedce.core.site import Compared, Memory, Moments, Pull, Trained
from fedce.federation.session import Observer, RoundSeen
from fedce.record.entries import Event
from fedce.record.folder import RunFolder
from fedce.record.ledger import signed_text
from fedce.record.results import results_of
from fedce.site.hospital import perform
from fedce.site.wire import Parcel


def layout(n_trainable: int, n_buffers: int = 0, n_counters: int = 0) -> Layout:
    kinds = (("trainable", n_trainable), ("buffer", n_buffers), ("counter", n_counters))
    return Layout(tuple(Entry(kind, (n,), kind) for kind, n in kinds if n))


def params(values: Sequence[float], n_buffers: int = 0, n_counters: int = 0) -> Params:
    n_trainable = len(values) - n_buffers - n_counters
    return Params(layout(n_trainable, n_buffers, n_counters), np.array(values, np.float32))


class FakeSite:
    """Adds a fixed update to whatever it is sent, and scores by a given function."""

    def __init__(
        self,
        name: str,
        update: Sequence[float],
        n_train: int = 10,
        score: Callable[[Params], float] = lambda w: 0.5,
        loss: float = 0.5,
    ) -> None:
        self.name, self.n_train = name, n_train
        self.update, self.score_of, self.loss_now = np.array(update, np.float32), score, loss
        self.n_scored = 0
        self.last: list[tuple[Params, float]] = []

    def train(self, w: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        vector = w.vector + self.update
        if pull is not None:
            n = w.layout.n_trainable
            vector[:n] -= np.float32(pull.strength) * (vector[:n] - pull.towards.trainable)
        steps = np.array(float(moments.get("step", 0)) + 1, np.float32)
        return Trained(Params(w.layout, vector), 0.1, {"step": steps})

    def loss(self, w: Params) -> float:
        return self.loss_now

    def score(self, w: Params) -> float:
        return self.scores([w])[0]

    def scores(self, models: Sequence[Params]) -> tuple[float, ...]:
        known = {id(w) for w, _ in self.last}
        if new := [w for w in models if id(w) not in known]:
            self.n_scored += len(new)
            self.last = [*(one for one in self.last if any(one[0] is w for w in models)), *self._scored(new)]
        return tuple(next(score for kept, score in self.last if kept is w) for w in models)

    def _scored(self, models: Sequence[Params]) -> list[tuple[Params, float]]:
        return [(w, self.score_of(w)) for w in models]

    def score_replicates(self, w: Params) -> tuple[float, ...]:
        return (self.score_of(w),) * N_REPLICATES

    def adapted(self, w: Params) -> Params:
        return w

    def test_dice(self, w: Params) -> float:
        return self.score_of(w)

    def compare(self, w: Params, other: Params | None) -> Compared:
        return Compared() if other is None else Compared(self.score_of(other))

    def evaluate(self, w: Params, without: Params | None) -> Evaluation:
        return Evaluation(self.score(w), {"a": self.score(w)}, None if without is None else self.score(without))


class FakeFederation:
    """Runs an algorithm over fake sites, without any engine."""

    def __init__(
        self, algorithm, sites: Sequence[FakeSite], start: Params | None = None, stays: Stays = "nothing"
    ) -> None:
        self.algorithm = algorithm
        self.sites = {site.name: site for site in sites}
        self.memories: dict[str, Memory] = {}
        self.initial = start or params([0.0] * len(sites[0].update))
        exchanged = part_of(self.initial, shared_layout(self.initial.layout, stays))
        self.state = algorithm.begin(sorted(self.sites), exchanged)
        self.replies: list[Reply] = []
        self.absent: set[str] = set()

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        replies = []
        for task in tasks:
            if task.site in self.absent:
                continue
            site, memory = self.sites[task.site], self.memories.get(task.site)
            reply, memory = perform(self.algorithm, site, task, memory, self.initial)
            if memory is not None:
                self.memories[task.site] = memory
            replies.append(reply)
        if tasks[0].action == "train":
            self.replies = replies
        return sorted(replies, key=lambda reply: reply.site)

    def evaluate(self, site: str) -> Reply:
        task = replace(self.algorithm.task(self.state, site), action="evaluate")
        return perform(self.algorithm, self.sites[site], task, self.memories.get(site), self.initial)[0]

    def run(self, n_rounds: int) -> State:
        for _ in range(n_rounds):
            self.state = self.algorithm.round(self.state, self.ask)
        return self.state


def contents_of(run: RunFolder) -> list[dict]:
    """What the lines of a ledger hold, to be changed."""
    return [json.loads(line) for line in run.lines()]


def as_recorded(rounds: Sequence[Mapping]) -> list[SimpleNamespace]:
    """Rounds that hold no more than a test gives them, as the ledger's lines have them."""
    return [
        SimpleNamespace(
            **{key: value for key, value in entry.items() if key not in ("round", "sites")},
            round_no=entry["round"],
            sites={site: SimpleNamespace(**facts) for site, facts in entry["sites"].items()},
            facts=entry["sites"],
        )
        for entry in rounds
    ]


def chained(entries: Sequence[dict], identity: Identity | None = None) -> list[str]:
    """A ledger made anew, as somebody would who knows how the chain works, and signs if there is a key."""
    lines, previous = [], "0" * 64
    for entry in entries:
        value = {key: part for key, part in entry.items() if key not in ("previous", "signature")}
        value["previous"] = previous
        if identity:
            value["signature"] = identity.sign(signed_text(value))
        elif "signature" in entry:
            value["signature"] = entry["signature"]
        lines.append(json.dumps(value))
        previous = sha256(lines[-1].encode()).hexdigest()
    return lines


def rewrite(run: RunFolder, lines: Sequence[str]) -> None:
    run.ledger_file.write_text("".join(line + "\n" for line in lines))


def made_anew(run: RunFolder, change: Callable[[list[dict]], object], *, results: bool = True) -> RunFolder:
    """A run whose coordinator changed its ledger, signed it again, and wrote the results that follow from it."""
    entries = contents_of(run)
    change(entries)
    rewrite(run, chained(entries, coordinator()))
    if results:
        run.write_results(results_of(run.config, run.ledger(), over_rounds="intervals_over_rounds" in run.results))
    return run


def rename_site(run: Path, old: str, new: str) -> None:
    """In a finished run's record, with chain and signatures made anew."""

    def rename(entries: list[dict]) -> None:
        text = json.dumps(entries).replace(json.dumps(old), json.dumps(new))
        entries[:] = json.loads(text)

    made_anew(RunFolder(run), rename)


def write_site(root: Path, site: str, n: int = 8, size=(32, 32), mode="RGB", value=255) -> Path:
    rng = np.random.default_rng(list(site.encode()))
    for part in ("images", "masks"):
        (root / site / part).mkdir(parents=True, exist_ok=True)
    for i in range(n):
        shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
        Image.fromarray(rng.integers(0, 255, shape).astype(np.uint8)).save(root / site / "images" / f"{i}.png")
        mask = np.zeros((size[1], size[0]), np.uint8)
        mask[4:12, 4:12] = value
        Image.fromarray(mask).save(root / site / "masks" / f"{i}.png")
    return root / site


class Stopped(Exception):
    """A run was stopped on purpose."""


def stopping_after(round_no: int) -> Observer:
    """Stops a run when this round is done, as a kill between two rounds would."""

    def stop(done: RoundSeen) -> None:
        if done.round_no == round_no:
            raise Stopped

    return Observer(round=stop)


HOSPITALS = ("east", "north", "south")
PLANNED = ("--rounds", "3", "--set", "model.channels=[4,8]", "--alone")
"""A quick run by the plan, which has no recipe of its own."""
OF_VOLUMES = {
    "data.source": "volume6",
    "data.scale": "tiny",
    "data.sites": ["site2", "site4", "site6"],
    "train.augment": "standard",
    "model.channels": [4, 8],
    "recipe": "small",
    "rounds": 4,
    "alone": True,
}
VOLUMES = [part for key, value in OF_VOLUMES.items() for part in ("--set", f"{key}={json.dumps(value)}")]
"""A quick run of volumes: as keys of the experiment, and as options of the command line."""


def events_of(folder: Path) -> list[str]:
    """What a ledger tells of sites that come, go or do wrong."""
    return [f"{event.site} {event.what}" for event in RunFolder(folder).ledger().of(Event)]


def rounded(values: Mapping[str, float], digits: int = 6) -> dict[str, float]:
    return {key: round(value, digits) for key, value in values.items()}


def open_page(
    chromium: str, page: Path | str, folder: Path, *options: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What Chromium makes of a page (its elements on stdout, its complaints on stderr), and a picture of it."""
    picture = folder / "page.png"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    shown = subprocess.run(
        [
            chromium,
            *quiet,
            "--window-size=1000,2400",
            "--enable-logging=stderr",
            "--dump-dom",
            f"--user-data-dir={folder / 'profile'}",
            f"--screenshot={picture}",
            *options,
            page.as_uri() if isinstance(page, Path) else page,
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return shown, picture


class Post:
    """A courier to answers in this process. `when` may change an answer, or swallow it."""

    def __init__(self, answers: dict[str, Callable[[Parcel], Parcel]]) -> None:
        self.answers = answers
        self.when: Callable[[str, str, Parcel], Parcel | str | None] = lambda node, about, answer: answer
        self.tickets = count()
        self.waiting: list[tuple[str, str, Parcel]] = []
        self.sent: list[tuple[str, Parcel]] = []
        self.late: list[tuple[str, Parcel | str]] = []

    def nodes(self) -> list[str]:
        return list(self.answers)

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        ticket = f"{node}/{next(self.tickets)}"
        self.waiting.append((ticket, node, parcel))
        self.sent.append((node, parcel))
        return ticket

    def collect(self):
        came, self.late = self.late, []
        waiting, self.waiting = self.waiting, []
        for ticket, node, parcel in waiting:
            if node not in self.answers:
                continue
            answer = self.when(node, parcel.about, self.answers[node](parcel))
            if answer is not None:
                came.append((ticket, answer))
        return came


def write_images(folder: Path, value: int, n: int = 8) -> None:
    """A site's folder of small images, each with a bright box that its mask marks by this value."""
    rng = np.random.default_rng(n)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for i in range(n):
        mask = np.zeros((32, 32), np.uint8)
        mask[8 : 20 + i % 4, 10:24] = 1
        image = 40 + 160 * mask + rng.integers(0, 20, mask.shape)
        Image.fromarray(image.astype(np.uint8)).save(folder / "images" / f"{i}.png")
        Image.fromarray(mask * np.uint8(value)).save(folder / "masks" / f"{i}.png")


def run_bundle(bundle: Path, images: Path, out: Path) -> None:
    command = ["-m", "monai.bundle", "run", "--config_file", bundle / "configs/inference.json", "--bundle_root", bundle]
    # Without fedce's own code: a receiver does not have it.
    alone = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "quick_start"), "OMP_NUM_THREADS": "1"}
    where = ["--dataset_dir", images, "--output_dir", out]
    done = subprocess.run([sys.executable, *map(str, command + where)], capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr[-2000:]
