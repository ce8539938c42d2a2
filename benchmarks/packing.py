"""Bytes of a federation whose models travel packed, and what 16-bit updates do to its results.

Real sites of fundus6 and prostate6 (demo), real tasks, answers and signatures; only the network between them is
missing: a courier in the same process counts the bytes of all tasks and answers. The same federation runs with `pack`
none, lossless and fp16; once more without guard and ballots, whose models take most of the bytes otherwise. Then a site
gets one model a round and sends one back. Shares and worth are in points of 100. Two seeds show how much such results
differ anyway.

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
from fedce.site.wire import Parcel, kind_of

FEDERATIONS = ("fundus6", "prostate6")
PACKS = ("none", "lossless", "fp16")
N_SITES, N_ROUNDS = 6, 10
MILLION = 1_000_000


class Counting:
    """A courier to sites in this process, which counts the bytes of tasks and of answers to them."""

    def __init__(self, sites: dict[str, Resident]) -> None:
        self.sites = sites
        self.down = self.up = self.n_sent = 0
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
                self.down += len(parcel.to_bytes())
                self.up += len(answer.to_bytes())
            yield ticket, answer


@dataclass(frozen=True)
class Ran:
    folder: Path
    down: int
    up: int
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


BARE = {"guard": "off", "worth.every": 0}


def run(source: str, pack: str, seed: int, folder: Path, **changes: Any) -> Ran:
    members = {f"site{i}": "" for i in range(1, N_SITES + 1)}
    settings = {"data.source": source, "engine.name": "flower", "engine.members": members, "pack": pack}
    config: Config = resolve(load(None, {**settings, "seed": seed, "rounds": N_ROUNDS, **changes}))
    sites = {
        name: Resident(at_hospital(config, name, source), name, folder / "homes" / name, versions()) for name in members
    }
    courier = Counting(sites)
    result = coordinate(config, folder / "run", courier)
    print(f"{source}, seed {seed}, {pack}: {courier.down:,} and {courier.up:,} bytes", flush=True)
    return Ran(folder / "run", courier.down, courier.up, dict(result.values))


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
            bare = {pack: run(source, pack, 0, Path(name) / source / pack / "bare", **BARE) for pack in PACKS}
            figures += _bytes(source, found) + _bytes(f"{source} without guard and ballots", [bare], both_ways=True)
            figures += _effects(source, found)
    seconds = [seconds_a_million() for _ in range(5)]
    return [
        *figures,
        Figure("CPU time to pack a million numbers", [1000 * pack for pack, _ in seconds], "ms"),
        Figure("CPU time to unpack them", [1000 * unpack for _, unpack in seconds], "ms"),
    ]


def _bytes(source: str, found: list[dict[str, Ran]], *, both_ways: bool = False) -> list[Figure]:
    def ratio(pack: str, *ways: str) -> list[float]:
        sent = [{name: sum(getattr(ran[name], way) for way in ways) for name in (pack, "none")} for ran in found]
        return [one[pack] / one["none"] for one in sent]

    figures = []
    for pack in ("lossless", "fp16"):
        figures.append(Figure(f"{source}: bytes, {pack} / none", ratio(pack, "down", "up"), at_most=0.5))
        if both_ways:
            figures.append(Figure(f"{source}: {pack}, to the sites", ratio(pack, "down")))
            figures.append(Figure(f"{source}: {pack}, from the sites", ratio(pack, "up")))
    return figures


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
