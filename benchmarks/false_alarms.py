"""False alarms: honest runs in which the guard, or its limits on replies, act against a site.

Honest federations: FedCE with batch and instance norm, Adam and SGD; FedAvg with batch norm and Adam. Runs with even
seeds below 10 are those by which limits may be chosen; the others are reported. An alarm is anything
that changes a bit: a reply rejected, trust below 1, an error not believed, statistics not used. Upper bounds are exact
(Clopper and Pearson), one-sided, 95 %, with a run as the unit: rounds of one run are not independent.

    python -m benchmarks.false_alarms --store STORE [--seeds 0-9] [--rounds 20] [--folder DIR] [--only-kept]
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from fedce.base.config import Config, parse
from fedce.base.tables import BUILT_IN
from fedce.questions.jobs import Store
from fedce.record.entries import Round
from fedce.record.folder import RunFolder

N_CHOOSING = 10
"""Seeds from here on are never used to choose limits."""
OPTIMIZERS: dict[str, dict[str, Any]] = {"adam": {}, "sgd": {"optimizer": "sgd", "lr": 0.05}}


def part_of(seed: int) -> str:
    if seed >= N_CHOOSING:
        return f"reported (seeds from {N_CHOOSING} on)"
    return "reported (odd seeds)" if seed % 2 else "to choose by (even seeds)"


def configs(folders: Iterable[str], rounds: int, seeds: Iterable[int]) -> list[Config]:
    """FedCE with every seed, data, norm and optimizer; then FedAvg with batch norm and Adam."""
    cases = [("fedce", norm, train) for norm in ("batch", "instance") for train in OPTIMIZERS.values()]
    sources = (*BUILT_IN, *folders)
    cases.append(("fedavg", "batch", OPTIMIZERS["adam"]))
    wanted = [(seed, source, *case) for seed in seeds for source in sources for case in cases]
    return [
        parse(
            {
                "seed": seed,
                "rounds": rounds,
                "data": {"source": source, **({} if source in BUILT_IN else {"size": 64})},
                "algorithm": {"name": algorithm},
                "model": {"norm": norm},
                "train": train,
            }
        )
        for seed, source, algorithm, norm, train in wanted
    ]


@dataclass
class Tally:
    """Counts over some runs."""

    n_runs: int = 0
    n_with_alarms: int = 0
    n_site_rounds: int = 0
    n_asked_about: int = 0
    """Pairs of a site and a round in which other sites were asked to test the site's running statistics."""
    extremes: dict[str, float] = field(default_factory=dict)
    """The value of each sign that was nearest to its limit."""
    alarms: Counter[str] = field(default_factory=Counter)
    """Kind of alarm to its number of pairs of a site and a round."""

    def add(self, rounds: list[Round]) -> None:
        found: Counter[str] = Counter()
        for done in rounds:
            found.update(f"rejected: {reason}" for reason in done.rejected.values())
            for site, facts in done.sites.items():
                found.update(flag.text for flag in facts.flags)
                if facts.trust < 1 and not facts.flags:
                    found["shares its credit with a twin"] += 1
                self.n_asked_about += facts.statistics_harm is not None
                self._note("most harm", facts.statistics_harm)
                self._note_signs(done.facts[site].get("signs") or {})
            self.n_site_rounds += len(done.sites) + len(done.rejected)
        self.n_runs += 1
        self.n_with_alarms += bool(found)
        self.alarms += found

    def _note_signs(self, signs: dict[str, Any]) -> None:
        for name in ("agreement", "relation", "turn", "coherence", "length"):
            self._note(f"least {name}", signs.get(name), lowest=True)
        for name in ("likeness", "repetition"):
            self._note(f"most {name}", signs.get(name))
        excess = signs.get("excess")
        self._note("most excess above the weight", None if excess is None else excess - signs["weight"])

    def _note(self, name: str, value: float | None, lowest: bool = False) -> None:
        if value is not None:
            choose = min if lowest else max
            self.extremes[name] = choose(self.extremes.get(name, value), value)

    @property
    def upper_bound(self) -> float:
        """Upper bound on the part of honest runs with an alarm."""
        if self.n_with_alarms == self.n_runs:
            return 1.0
        return float(stats.beta.ppf(0.95, self.n_with_alarms + 1, self.n_runs - self.n_with_alarms))


def tallies(store: Store, wanted: Iterable[Config]) -> dict[tuple[str, str], Tally]:
    found: dict[tuple[str, str], Tally] = {}
    for config in wanted:
        if store.finished(config) is None:
            continue
        part = part_of(config.seed)
        rounds = RunFolder(store.path(config)).rounds()
        source = Path(config.data.source).name
        kind = f"{source}, {config.model.norm} norm, {config.train.optimizer}, {config.algorithm.name}"
        for name in (kind, "all"):
            found.setdefault((part, name), Tally()).add(rounds)
    return found


def table(found: dict[tuple[str, str], Tally]) -> str:
    lines = [
        "| part | runs of | runs | with an alarm | upper bound | sites x rounds | asked about statistics |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (part, name), tally in sorted(found.items()):
        lines.append(
            f"| {part} | {name} | {tally.n_runs} | {tally.n_with_alarms} | {100 * tally.upper_bound:.1f} % | "
            f"{tally.n_site_rounds} | {tally.n_asked_about} |"
        )
    for (part, name), tally in sorted(found.items()):
        lines.append(f"{part}; {name}: " + ", ".join(f"{what} {value:.3f}" for what, value in tally.extremes.items()))
        lines += [f"{part}; {name}: {n} x {what}" for what, n in tally.alarms.most_common()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="0-9", help="first and last")
    parser.add_argument("--folder", action="append", default=[], help="a folder of sites, such as PolypGen")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--only-kept", action="store_true", help="train nothing; look at what the store has")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    store, wanted = Store(given.store), configs(given.folder, given.rounds, range(first, last + 1))
    if not given.only_kept:
        store.run(wanted, given.workers)
    print(table(tallies(store, wanted)))


if __name__ == "__main__":
    main()
