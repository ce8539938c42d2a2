"""Volumes by the plan: each site alone and together, what it gives by the ballots, and what is lost without it.

FedCE and FedAvg are trained with the experiment that is planned from the data, guard off. Leave-one-out trains FedCE
again without each site; the common model is valued there, so nobody personalises. Trainings are kept in the store, and
a call that was cut off goes on.

    python -m benchmarks.volume6 --store STORE [--data volume6] [--seeds 0,1,2]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from benchmarks.nobody_loses import planned_for

from fedce.base.config import Config
from fedce.base.tables import WorthConfig
from fedce.federation.session import Result
from fedce.questions.jobs import Store
from fedce.questions.value import trainings


def configs_of(source: str, seed: int, sites: Sequence[str]) -> list[Config]:
    """FedCE and FedAvg by the plan, then leave-one-out with FedCE: everybody, and without each site."""
    ours, plain = (
        planned_for(source, {"algorithm.name": name}).model_copy(update={"seed": seed}) for name in ("fedce", "fedavg")
    )
    plain = plain.model_copy(update={"alone": False, "worth": WorthConfig(every=0)})
    return [ours, plain, *trainings(ours, "loo", sites)]


def lost(results: Sequence[Result], sites: Sequence[str]) -> np.ndarray:
    """Dice in points that each site (second axis) loses without each site (first axis)."""
    whole, without = results[0], results[1:]
    return np.array([[100 * (whole.dice[site] - one.dice[site]) for site in sites] for one in without])


def table(found: Sequence[Sequence[Result]], sites: Sequence[str]) -> list[str]:
    """Means over the seeds; Dice in per cent."""
    ours, plain = ([results[i] for results in found] for i in (0, 1))
    losses = np.mean([lost(results[2:], sites) for results in found], axis=0)
    rows = {
        "alone": [[100 * run.values["alone"][site] for run in ours] for site in sites],
        "FedAvg, common": [[100 * run.values["dice_common"][site] for run in plain] for site in sites],
        "FedAvg, kept": [[100 * run.dice[site] for run in plain] for site in sites],
        "FedCE, common": [[100 * run.values["dice_common"][site] for run in ours] for site in sites],
        "FedCE, kept": [[100 * run.dice[site] for run in ours] for site in sites],
    }
    lines = [f"| | {' | '.join(sites)} | mean | deviation | worst |", f"|---|{'---|' * (len(sites) + 3)}"]
    for name, by_site in rows.items():
        seeds = list(zip(*by_site, strict=True))
        cells = [fmean(one) for one in by_site]
        cells += [fmean(map(fmean, seeds)), fmean(map(stdev, seeds)), fmean(map(min, seeds))]
        lines.append(f"| {name} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    gains = [[100 * run.values["gain"][site] for run in ours] for site in sites]
    told = [f"{fmean(one):+.1f} ({min(one):+.1f} to {max(one):+.1f})" for one in gains]
    lines.append(f"| gain of FedCE, kept, over alone (lowest and highest seed) | {' | '.join(told)} | | | |")
    for key, name in (("contributions", "FedCE's share (needs), %"), ("share", "worth.share (gives), %")):
        cells = [fmean(100 * _of(run, key, site) for run in ours) for site in sites]
        lines.append(f"| {name} | {' | '.join(f'{cell:.1f}' for cell in cells)} | | | |")
    within = [
        f"{fmean(100 * _of(run, 'low', site) for run in ours):.0f} to "
        f"{fmean(100 * _of(run, 'high', site) for run in ours):.0f}"
        for site in sites
    ]
    lines.append(f"| its 95 % interval, mean of the ends | {' | '.join(within)} | | | |")
    own = np.diag(losses)
    others = (losses.sum(axis=1) - own) / (len(sites) - 1)
    for name, values in (("lost by the others without it, points", others), ("lost by itself, points", own)):
        lines.append(f"| {name} | {' | '.join(f'{value:+.1f}' for value in values)} | | | |")
    return lines


def _of(run: Result, key: str, site: str) -> float:
    return float((run.contributions if key == "contributions" else run.values["worth"][key])[site])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--store", type=Path, required=True)
    options.add_argument("--data", default="volume6")
    options.add_argument("--seeds", default="0,1,2")
    given = options.parse_args()
    store = Store(given.store, print)
    sites = [site.name for site in store.sites(planned_for(given.data, {}).data)]
    # One seed after another, so that a call that was cut off has whole seeds.
    found = [store.run(configs_of(given.data, int(seed), sites)) for seed in given.seeds.split(",")]
    print("\n".join(table(found, sites)))


if __name__ == "__main__":
    main()
