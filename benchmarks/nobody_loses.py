"""Does a hospital gain by joining? The plan's recipe against training alone, and at a hospital that took no part.

For each federation the experiment is planned from its data, and trained with several seeds beside every site alone with
as many steps. With --unseen, each site in turn is left out of the plan and of the training; the common model is then
used there with pooled batch-norm statistics, and with statistics estimated from the site's training images without
their masks (as `fedce predict --adapt` does), beside what the site reaches alone.

    python -m benchmarks.nobody_loses --store STORE [--data fundus6,prostate6,DIR] [--seeds 0,1,2] [--set KEY=VALUE]
                                      [--algorithm fedce] [--unseen [--only SITE,SITE]]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedce.base.config import Config, parse_assignment, written
from fedce.base.tables import WorthConfig
from fedce.data.fingerprint import look_at
from fedce.federation.plan import Participants
from fedce.federation.session import Result
from fedce.learning.planning import completed_by, fingerprints_in, plan_of
from fedce.questions.jobs import Store
from fedce.questions.loading import Which, load_model
from fedce.record.folder import RunFolder
from fedce.site.hospital import Hospital


def planned_for(source: str, changes: dict[str, Any], sites: Sequence[str] = ()) -> Config:
    """The experiment planned from these sites alone; by default from all."""
    tree = written(None, {"data.source": source, "alone": True, "guard": "off", **changes})
    if not sites:
        return completed_by(tree, plan_of(fingerprints_in(tree))).config
    whole = completed_by(tree, plan_of(fingerprints_in(tree))).config.data
    known = look_at(whole.model_copy(update={"sites": tuple(sites)}))
    tree = {**tree, "data": {**tree["data"], "sites": tuple(sites)}}
    return completed_by(tree, plan_of(known)).config


def table(source: str, config: Config, results: Sequence[Result]) -> list[str]:
    """A row for each site: means over seeds, in per cent."""
    sites = list(results[0].dice)
    name = Path(source).name
    lines = [
        f"{name}, {config.algorithm.name}, {config.n_rounds} rounds, {len(results)} seeds, Dice in %:",
        "| site | together | alone | gain | gain by seed |",
        "|---|---|---|---|---|",
    ]
    for site in sites:
        gains = [100 * result.values["gain"][site] for result in results]
        together = fmean(100 * result.dice[site] for result in results)
        alone = fmean(100 * result.values["alone"][site] for result in results)
        by_seed = ", ".join(f"{gain:+.1f}" for gain in gains)
        lines.append(f"| {site} | {together:.1f} | {alone:.1f} | {fmean(gains):+.1f} | {by_seed} |")
    for what, values in (("together", [r.dice for r in results]), ("alone", [r.values["alone"] for r in results])):
        means = [fmean(one.values()) for one in values]
        spread = fmean(stdev(one.values()) for one in values)
        worst = fmean(min(one.values()) for one in values)
        lines.append(f"{what}: mean {100 * fmean(means):.1f}, deviation {100 * spread:.1f}, worst {100 * worst:.1f}")
    return lines


def unseen(
    source: str, changes: dict[str, Any], store: Store, sites: Sequence[str], left_out: Sequence[str]
) -> list[str]:
    """A row for each site that took no part: not in the plan, not in the training, not in the pooled statistics."""
    # Only the common model is used here.
    only_common = {"alone": False, "personalise": 0, "worth": WorthConfig(every=0)}
    planned = {
        site: planned_for(source, changes, [other for other in sites if other != site]).model_copy(update=only_common)
        for site in left_out
    }
    results = dict(zip(planned, store.run(list(planned.values())), strict=True))
    lines = ["| site that took no part | pooled statistics | adapted | alone |", "|---|---|---|---|"]
    for site, config in planned.items():
        loaded = load_model(RunFolder(results[site].folder), Which(trust_code=True, device="cpu"))
        everybody = store.sites(config.data.model_copy(update={"sites": ()}))
        data = next(one for one in everybody if one.name == site)
        hospital = Hospital(data, loaded.learner, tuple(loaded.classes), config.seed)
        model = loaded.learner.params
        dice = [hospital.test_dice(one) for one in (model, hospital.adapted(model))]
        participants = Participants(config, everybody)
        own, trained, moments = participants.hospital(site), participants.learner.initial, {}
        for round_no in range(config.n_rounds):
            after = own.train(trained, round_no, moments)
            trained, moments = after.params, after.moments
        dice.append(own.test_dice(trained))
        lines.append(f"| {site} | " + " | ".join(f"{100 * value:.1f}" for value in dice) + " |")
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--store", type=Path, required=True)
    options.add_argument("--data", default="fundus6,prostate6")
    options.add_argument("--seeds", default="0,1,2")
    options.add_argument("--algorithm", default="fedce")
    options.add_argument("--set", dest="assignments", action="append", default=[])
    options.add_argument("--unseen", action="store_true")
    options.add_argument("--only", default="", help="with --unseen: leave out these sites alone, not each in turn")
    given = options.parse_args()
    store = Store(given.store, print)
    changes = {"algorithm.name": given.algorithm, **dict(map(parse_assignment, given.assignments))}
    for source in given.data.split(","):
        config = planned_for(source, changes)
        if given.unseen:
            names = [site.name for site in store.sites(config.data)]
            left_out = [name for name in names if name in given.only.split(",")] if given.only else names
            rows = unseen(source, changes, store, names, left_out)
            print("\n".join([f"{Path(source).name}:", *rows]), flush=True)
            continue
        seeds = [int(seed) for seed in given.seeds.split(",")]
        results = store.run([config.model_copy(update={"seed": seed}) for seed in seeds])
        print("\n".join(table(source, config, results)), flush=True)


if __name__ == "__main__":
    main()
