"""Every kind of free rider at every site in turn: found or not, in which round, and false alarms on honest sites.

python benchmarks/free_riders.py [--data fundus6] [--scale demo] [--rounds 15] [--seeds 0] [--store runs/store]
"""

import argparse
from pathlib import Path
from statistics import median

from fedce.base.config import parse
from fedce.questions.jobs import Store

KINDS = ("repeat", "zero", "noise", "replay", "echo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fundus6")
    parser.add_argument("--scale", default="demo")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--store", type=Path, default=Path("runs/store"))
    options = parser.parse_args()
    store = Store(options.store, print)
    seeds = [int(seed) for seed in options.seeds.split(",")]

    def config(seed: int, plant: dict[str, str]):
        data = {"source": options.data, "scale": options.scale}
        detector = {"detect": True, "plant": plant}
        return parse({"seed": seed, "rounds": options.rounds, "data": data, "freerider": detector})

    sites = [site.name for site in store.sites(config(0, {}).data)]
    cases = [(kind, site, seed) for kind in KINDS for site in sites for seed in seeds]
    planted = [config(seed, {site: kind}) for kind, site, seed in cases]
    honest = [config(seed, {}) for seed in seeds]
    results = store.run(
        [*planted, *honest], progress=lambda now: print(f"rounds {now.rounds_done}/{now.n_rounds}", end="\r")
    )
    print("\n| kind | found | round (median, latest) | false alarms on others | highest D13 score is the rider's |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        rows = [
            (site, result.values["freerider"])
            for (k, site, _), result in zip(cases, results, strict=False)
            if k == kind
        ]
        rounds = [
            alarm["round_no"] + 1 for site, found in rows for alarm in found[site]["alarms"] if alarm["kind"] == kind
        ]
        false = sum(bool(facts["alarms"]) for site, found in rows for other, facts in found.items() if other != site)
        top = sum(max(found, key=lambda other: found[other]["scores"][-1] or 0.0) == site for site, found in rows)
        when = f"{median(rounds):.0f}, {max(rounds)}" if rounds else "-"
        print(f"| {kind} | {len(rounds)}/{len(rows)} | {when} | {false}/{5 * len(rows)} | {top}/{len(rows)} |")
    quiet = [facts["alarms"] for result in results[len(cases) :] for facts in result.values["freerider"].values()]
    print(f"\nhonest runs: {sum(map(bool, quiet))} of {len(quiet)} sites raised an alarm")


if __name__ == "__main__":
    main()
