"""False alarms: honest runs in which the guard, or its limits on replies, act against a site.

Honest federations: FedCE with batch and instance norm, Adam and SGD; FedAvg with batch norm and Adam. Runs with even
seeds below 10 are those by which limits may be chosen; the others are reported. An alarm is anything
that changes a bit: a reply rejected, trust below 1, an error not believed, statistics not used. Upper bounds are exact
(Clopper and Pearson), one-sided, 95 %, with a run as the unit: rounds of one run are not independent.

With --conditions, tiny federations with one unusual honest site each (benchmarks/unusual.py), and with every norm and
optimizer; here the unit is a site in a run, and a site is expelled in a round in which nothing of its reply is used.

    python -m benchmarks.false_alarms --store STORE [--seeds 0-9] [--rounds 20] [--folder DIR] [--only-kept]
    python -m benchmarks.false_alarms --store STORE --conditions --seeds 0-1 --rounds 14
"""

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.unusual import UNUSUAL
from scipy import stats

from fedce.base.config import Config, parse
from fedce.base.tables import BUILT_IN
from fedce.questions.jobs import Store
from fedce.record.entries import Round
from fedce.record.folder import RunFolder

N_CHOOSING = 10
"""Seeds from here on are never used to choose limits."""
ODD = "site2"
"""The site that is unusual."""
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


def conditions(rounds: int, seeds: Iterable[int]) -> list[tuple[str, Config]]:
    """Each condition of an honest site with its experiments; small networks, because the guard sees only updates."""
    plain = {
        **{f"{norm} norm": {"model": {"norm": norm}} for norm in ("batch", "instance", "site")},
        "SGD": {"train": OPTIMIZERS["sgd"]},
    }
    odd = {name: {"freerider": {"plant": {ODD: f"benchmarks.unusual:{attack}"}}} for name, attack in UNUSUAL.items()}
    found = []
    for seed in seeds:
        for source in ("fundus6", "prostate6"):
            for name, tables in {**plain, **odd}.items():
                model = {"channels": [4, 8], **tables.get("model", {})}
                common = {"seed": seed, "rounds": rounds, "data": {"source": source, "scale": "tiny"}}
                found.append((name, parse({**common, "worth": {"every": 0}, **tables, "model": model})))
    return found


@dataclass
class Honest:
    """Honest sites in runs of one condition."""

    n_site_runs: int = 0
    alarmed: list[str] = field(default_factory=list)
    """Sites in whose run anything changed a bit, with what was said of them."""
    n_expelled: int = 0
    """Sites of whose replies nothing was used, in at least one round."""

    def add(self, where: str, rounds: list[Round]) -> None:
        said: dict[str, Counter[str]] = {}
        expelled = set()
        for done in rounds:
            for site, facts in done.sites.items():
                said.setdefault(site, Counter()).update(flag.text for flag in facts.flags)
                said[site].update(["shares its credit with a twin"] if 0 < facts.trust < 1 and not facts.flags else [])
                expelled.update([site] if facts.trust == 0 else [])
            for site, reason in done.rejected.items():
                said.setdefault(site, Counter()).update([f"rejected: {reason}"])
                expelled.add(site)
        self.n_site_runs += len(said)
        self.n_expelled += len(expelled)
        self.alarmed += [f"{where}, {site}: {dict(found)}" for site, found in said.items() if found]


def upper_bound(n_found: int, n: int) -> float:
    """One-sided 95 % upper bound (Clopper and Pearson) on a part of which n_found of n were found."""
    return 1.0 if n_found == n else float(stats.beta.ppf(0.95, n_found + 1, n - n_found))


def conditions_table(store: Store, wanted: Iterable[tuple[str, Config]]) -> str:
    found: dict[tuple[str, str], Honest] = {}
    for name, config in wanted:
        if store.finished(config) is None:
            continue
        where = f"{config.data.source}, seed {config.seed}"
        for key in ((part_of(config.seed), name), (part_of(config.seed), "all"), ("both", name), ("both", "all")):
            found.setdefault(key, Honest()).add(where, RunFolder(store.path(config)).rounds())
    lines = [
        "| part | condition | site-runs | with an alarm | expelled | upper bound of alarms | of expelled |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (part, name), honest in sorted(found.items()):
        n, alarms = honest.n_site_runs, len(honest.alarmed)
        bounds = f"{100 * upper_bound(alarms, n):.1f} % | {100 * upper_bound(honest.n_expelled, n):.1f} %"
        lines.append(f"| {part} | {name} | {n} | {alarms} | {honest.n_expelled} | {bounds} |")
    for (part, name), honest in sorted(found.items()):
        if part == "both" and name != "all":
            lines += [f"{name}: {what}" for what in honest.alarmed]
    return "\n".join(lines)


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
        return upper_bound(self.n_with_alarms, self.n_runs)


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
    parser.add_argument("--conditions", action="store_true", help="unusual honest sites, at tiny scale")
    parser.add_argument("--only-kept", action="store_true", help="train nothing; look at what the store has")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    store, seeds = Store(given.store), range(first, last + 1)
    named = conditions(given.rounds, seeds) if given.conditions else []
    wanted = [config for _, config in named] or configs(given.folder, given.rounds, seeds)
    if not given.only_kept:
        store.run(wanted, given.workers)
    print(conditions_table(store, named) if named else table(tallies(store, wanted)))


if __name__ == "__main__":
    main()
