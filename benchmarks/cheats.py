"""What some attacks gain in guarded FedCE's shares and in worth: rows of `fedce study robustness`, guarded runs only.

The attackers are the second site, or the second and the fourth. Gains are compared with the honest run of the same
seed, and for one hospital under two names with the run in which it takes part once.

    python -m benchmarks.cheats --store STORE --data fundus6 [--rounds 20] [--seeds 0,1] [--kinds slander,praise]
"""

import argparse
from pathlib import Path

from fedce.base.config import parse
from fedce.questions.jobs import Store
from fedce.studies import Context
from fedce.studies.robustness import (
    WHAT,
    Case,
    cases,
    config_of,
    contributions_of,
    effect,
    has_worth,
    methods,
    worth_of,
)


def table(context: Context, rows: list[Case]) -> str:
    guarded = methods()["guarded"]
    lines = [
        "| data | attack | attackers | gain % | rare keeps % | gain of worth % | rare keeps % | not believed | flags |",
        "|---|---|---|---:|---:|---:|---:|---|---|",
    ]
    for case in rows:
        shares, gives = (effect(context, guarded, case, of) for of in (contributions_of, worth_of))
        runs = [context.result(config_of(context, guarded, seed, case)).values for seed in context.seeds]
        out = sorted({site for run in runs for site in run["worth"].get("not_believed", ())})
        flagged = sorted({site for run in runs for site in run["flags"]})
        cells = [f"{100 * gain:+.1f} | {100 * kept:.1f}" for gain, kept in ((e.gain, e.kept) for e in (shares, gives))]
        who = f"| {context.data} | {case.kind} | {len(case.attackers)} |"
        lines.append(f"{who} {' | '.join(cells)} | {', '.join(out) or '-'} | {', '.join(flagged) or '-'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data", default="fundus6")
    parser.add_argument("--scale", default="demo")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--kinds", default=",".join(WHAT))
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    config = parse({"rounds": given.rounds, "data": {"source": given.data, "scale": given.scale}})
    context = Context(config, [int(seed) for seed in given.seeds.split(",")], Store(given.store))
    rows, guarded = [case for case in cases(context.names) if case.kind in given.kinds.split(",")], methods()["guarded"]
    honest = sorted({case.absent for case in rows})
    wanted = [config_of(context, guarded, seed, None, left) for seed in context.seeds for left in honest]
    wanted += [config_of(context, guarded, seed, case) for seed in context.seeds for case in rows]
    context.store.run(wanted, given.workers)
    assert has_worth(context, rows), "no worth: more rounds are needed"
    print(table(context, rows))


if __name__ == "__main__":
    main()
