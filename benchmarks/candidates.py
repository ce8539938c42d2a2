"""Does `fedce value --candidate` tell what a hospital will add? Each member is left out once, and predicted.

A federation is trained without one of its members; from this run, `--candidate` says what the others would gain by it.
The truth is the same experiment trained from the beginning with the member. A table shows both for each member, and how
often the interval holds the truth.

    python -m benchmarks.candidates --store STORE [--data fundus6|DIR] [--set KEY=VALUE] [--rounds 10] [--seeds 0,1,2]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from scipy import stats

from fedce.base.config import Config, parse, parse_assignment, written
from fedce.base.tables import WorthConfig
from fedce.data import synthetic
from fedce.data.drawn import write_site
from fedce.data.sites import site_names
from fedce.data.synthetic import FEDERATIONS
from fedce.questions.candidate import Candidacy, candidacy
from fedce.questions.jobs import Store
from fedce.record.folder import RunFolder

SIZE = 64


def as_folder(source: str, store: Path) -> Path:
    """The federation as folders of images, which a candidate has too; a built-in one is drawn."""
    if source not in FEDERATIONS:
        return Path(source).resolve()
    place = store / f"{source}-images"
    for site, n in synthetic.counts(FEDERATIONS[source], 1.0).items():
        if not (place / site).exists():
            write_site(source, site, place / site, n, size=SIZE)
    return place.resolve()


def experiment(source: str, folder: Path, assignments: Sequence[str]) -> Config:
    keys = dict(map(parse_assignment, assignments))
    if source in FEDERATIONS:
        keys = {"data.classes": {name: list(v) for name, v in FEDERATIONS[source].classes.items()}, **keys}
    made = parse(written(None, {"recipe": "small", "data.source": str(folder), "guard": "off", **keys}))
    return made.model_copy(update={"worth": WorthConfig(every=0)})


def table(truth: dict[str, float], told: dict[str, Candidacy]) -> str:
    lines = ["| member | the others gain, points | predicted | from | to | holds |", "|---|---:|---:|---:|---:|---|"]
    n_held = 0
    for site, gain in truth.items():
        found = told[site]
        assert found.gain is not None
        assert found.interval is not None
        low, high = found.interval
        holds = low <= gain <= high
        n_held += holds
        numbers = " | ".join(f"{100 * value:+.2f}" for value in (gain, found.gain, low, high))
        lines.append(f"| {site} | {numbers} | {'yes' if holds else 'no'} |")
    order = stats.spearmanr(list(truth.values()), [told[site].gain for site in truth]).statistic
    lines.append(f"\nHolds the truth: {n_held} of {len(truth)}. Spearman's rank correlation: {order:.2f}.")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--store", type=Path, required=True)
    options.add_argument("--data", default="fundus6")
    options.add_argument("--set", dest="assignments", action="append", default=[])
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seeds", default="0,1,2")
    given = options.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    folder = as_folder(given.data, given.store)
    whole = experiment(given.data, folder, given.assignments)
    members = site_names(whole.data)
    store = Store(given.store, print)
    without = {
        site: whole.model_copy(
            update={"data": whole.data.model_copy(update={"sites": tuple(one for one in members if one != site)})}
        )
        for site in members
    }
    trained = {
        site: store.run([config.model_copy(update={"seed": seed}) for seed in seeds])
        for site, config in {"": whole, **without}.items()
    }
    truth, told = {}, {}
    for site in members:
        others = [one for one in members if one != site]
        truth[site] = fmean(
            fmean(after.dice[one] - before.dice[one] for one in others)
            for before, after in zip(trained[site], trained[""], strict=True)
        )
        run = RunFolder(trained[site][0].folder)
        told[site] = candidacy(run, folder / site, given.rounds, seeds, given.store, print)
    print(table(truth, told))


if __name__ == "__main__":
    main()
