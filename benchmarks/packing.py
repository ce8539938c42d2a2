"""Bytes of a federation whose models travel packed, and what 16-bit updates do to its results.

Real sites of fundus6 and prostate6 (demo), real tasks, answers and signatures; only the network between them is
missing: a courier in the same process counts the bytes. "Training" are the model that a site starts from and the one
that it sends back; "all" also has the models of ballots and of the guard's trials, which sites score. The same
federation runs with `pack` none, lossless and fp16. Shares and worth are in points of 100. Two seeds show how much such
results differ anyway.

    python -m benchmarks.packing [--repeats 2]
"""

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from benchmarks.bits import same
from benchmarks.figures import Figure, main

from fedce.base.config import Config, load
from fedce.core.packing import packed, rounded, unpacked
from fedce.core.params import Entry, Layout, Params
from fedce.engines.starting import coordinate
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.site.resident import Resident, at_hospital
from fedce.site.wire import Parcel, TaskForm, kind_of

FEDERATIONS = ("fundus6", "prostate6")
PACKS = ("none", "lossless", "fp16")
N_SITES, N_ROUNDS = 6, 10
MILLION = 1_000_000


class Counting:
    """A courier to sites in this process, which counts the bytes of tasks and of answers to them."""

    def __init__(self, sites: dict[str, Resident]) -> None:
        self.sites = sites
        self.bytes = dict.fromkeys(("all", "down", "up"), 0)
        """Of all tasks and answers, and of training: to the sites and back."""
        self.n_sent = 0
        self.waiting: list[tuple[str, str, Parcel]] = []

    def nodes(self) -> list[str]:
        return list(self.sites)

    def send(self, node: str, parcel: Parcel, round_no: int) -> str:
        self.n_sent += 1
        self.waiting.append((str(self.n_sent), node, parcel))
        return str(self.n_sent)

    def collect(self) -> Iterator[tuple[str, Parcel | str]]:
        waiting, self.waiting = self.waiting, []
        for ticket, node, parcel in waiting:
            answer = self.sites[node].answer(parcel)
            if kind_of(parcel.about) == "task":
                down, up = len(parcel.to_bytes()), len(answer.to_bytes())
                self.bytes["all"] += down + up
                if TaskForm.read(parcel.about).action == "train":
                    self.bytes["down"] += down
                    self.bytes["up"] += up
            yield ticket, answer


@dataclass(frozen=True)
class Ran:
    folder: Path
    bytes: dict[str, int]
    values: dict[str, Any]

    @property
    def dice(self) -> float:
        return float(np.mean(list(self.values["dice"].values())))

    @property
    def shares(self) -> dict[str, float]:
        found: dict[str, float] = self.values["contributions"]
        return found

    @property
    def worth(self) -> dict[str, float]:
        found: dict[str, float] = self.values["worth"]["share"]
        return found


def run(source: str, pack: str, seed: int, folder: Path) -> Ran:
    members = {f"site{i}": "" for i in range(1, N_SITES + 1)}
    settings = {"data.source": source, "engine.name": "flower", "engine.members": members, "pack": pack}
    config: Config = resolve(load(None, {**settings, "seed": seed, "rounds": N_ROUNDS}))
    sites = {
        name: Resident(at_hospital(config, name, source), name, folder / "homes" / name, versions()) for name in members
    }
    courier = Counting(sites)
    result = coordinate(config, folder / "run", courier)
    print(f"{source}, seed {seed}, {pack}: {courier.bytes}", flush=True)
    return Ran(folder / "run", courier.bytes, dict(result.values))


def most_apart(one: dict[str, float], other: dict[str, float]) -> float:
    """In points of 100."""
    return 100 * max(abs(one[site] - other[site]) for site in one)


def seconds_a_million() -> tuple[float, float]:
    """CPU seconds to pack and to unpack a million numbers whose updates are a fortieth of them."""
    rng = np.random.default_rng(0)
    layout = Layout((Entry("w", (MILLION,), "trainable"),))
    base = Params(layout, rng.normal(0, 0.04, MILLION).astype(np.float32))
    model, _ = rounded(base, Params(layout, base.vector + rng.normal(0, 0.001, MILLION).astype(np.float32)), None)
    start = process_time()
    packet = packed(model, base)
    between = process_time()
    unpacked(packet, layout, base)
    return between - start, process_time() - between


def measure(repeats: int) -> list[Figure]:
    logging.disable(logging.WARNING)
    figures = []
    with tempfile.TemporaryDirectory() as name:
        for source in FEDERATIONS:
            found = [
                {pack: run(source, pack, seed, Path(name) / source / pack / str(seed)) for pack in PACKS}
                for seed in range(repeats)
            ]
            for ran in found:
                assert same(ran["none"].folder, ran["lossless"].folder), "lossless packing changed the results"
            figures += _bytes(source, found) + _effects(source, found)
    seconds = [seconds_a_million() for _ in range(5)]
    return [
        *figures,
        Figure("CPU time to pack a million numbers", [1000 * pack for pack, _ in seconds], "ms"),
        Figure("CPU time to unpack them", [1000 * unpack for _, unpack in seconds], "ms"),
    ]


def _bytes(source: str, found: list[dict[str, Ran]]) -> list[Figure]:
    def ratio(pack: str, *ways: str) -> list[float]:
        return [
            sum(ran[pack].bytes[way] for way in ways) / sum(ran["none"].bytes[way] for way in ways) for ran in found
        ]

    return [
        figure
        for pack in ("lossless", "fp16")
        for figure in (
            Figure(f"{source}: {pack}, all bytes", ratio(pack, "all"), at_most=0.5),
            Figure(f"{source}: {pack}, training", ratio(pack, "down", "up"), at_most=0.5),
            Figure(f"{source}: {pack}, training, to the sites", ratio(pack, "down")),
            Figure(f"{source}: {pack}, training, back", ratio(pack, "up")),
        )
    ]


def _effects(source: str, found: list[dict[str, Ran]]) -> list[Figure]:
    plain = [ran["none"] for ran in found]
    halves = [ran["fp16"] for ran in found]
    pairs = list(zip(plain, halves, strict=True))
    figures = [
        Figure(f"{source}: mean test Dice, fp16 less none", [b.dice - a.dice for a, b in pairs], "(fraction)"),
        Figure(f"{source}: largest change of a share", [most_apart(a.shares, b.shares) for a, b in pairs], "points"),
        Figure(f"{source}: largest change of worth", [most_apart(a.worth, b.worth) for a, b in pairs], "points"),
    ]
    if len(plain) > 1:
        one, other = plain[:2]
        figures += [
            Figure(f"{source}: mean test Dice, between two seeds", [abs(one.dice - other.dice)], "(fraction)"),
            Figure(f"{source}: a share, between two seeds", [most_apart(one.shares, other.shares)], "points"),
            Figure(f"{source}: worth, between two seeds", [most_apart(one.worth, other.worth)], "points"),
        ]
    return figures


if __name__ == "__main__":
    main(__doc__, measure, repeats=2)
