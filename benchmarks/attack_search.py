"""The strength with which each attack gains most: at most eight trainings an attack, on seed 0 of one federation.

Guarded FedCE for 20 rounds; the attacker is the second site, and the fourth where two are needed. Slander and praise
are judged by what they gain in worth, all others by worth or FedCE's share, whichever gains more. What is found on
fundus6 is then written to `TUNABLE` (site/attacks.py) and used unchanged on other data and seeds.

    python -m benchmarks.attack_search --store STORE [--data fundus6] [--kinds overstate,drift]
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedce.base.config import parse
from fedce.questions.jobs import Store
from fedce.site.attacks import TUNABLE, attack_of
from fedce.studies import Context
from fedce.studies.robustness import Case, config_of, contributions_of, effect, methods, worth_of

ABOUT_WORTH = ("slander", "praise")
"""Lies about other sites; they leave FedCE's share as it is."""


def cases_of(kind: str, names: Sequence[str]) -> dict[float, Case]:
    attackers = (names[1], names[3]) if attack_of(kind).is_paired else (names[1],)
    return {strength: Case(f"{kind}={strength:g}", attackers) for strength in TUNABLE[kind].strengths}


def table(gains: Mapping[str, Mapping[float, float]]) -> str:
    """A row for each attack: the gain with every strength, and the best."""
    lines = ["| attack | best strength | gain % | all strengths: gain % |", "|---|---:|---:|---|"]
    for kind, by_strength in gains.items():
        best = max(by_strength, key=lambda strength: by_strength[strength])
        each = ", ".join(f"{strength:g}: {100 * gain:+.0f}" for strength, gain in by_strength.items())
        lines.append(f"| {kind} | {best:g} | {100 * by_strength[best]:+.1f} | {each} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data", default="fundus6")
    parser.add_argument("--kinds", default=",".join(TUNABLE))
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    if unknown := [kind for kind in given.kinds.split(",") if kind not in TUNABLE]:
        parser.error(f"--kinds: {', '.join(unknown)}; attacks that take a strength: {', '.join(TUNABLE)}")
    context = Context(parse({"rounds": 20, "data": {"source": given.data}}), [0], Store(given.store))
    guarded, rows = methods()["guarded"], {kind: cases_of(kind, context.names) for kind in given.kinds.split(",")}
    honest = config_of(context, guarded, 0, None)
    attacked = [config_of(context, guarded, 0, case) for by_strength in rows.values() for case in by_strength.values()]
    context.store.run([honest, *attacked], given.workers)

    def gain(kind: str, case: Case) -> float:
        by = (worth_of,) if kind in ABOUT_WORTH else (worth_of, contributions_of)
        return max(effect(context, guarded, case, shares).gain for shares in by)

    gains = {kind: {strength: gain(kind, case) for strength, case in found.items()} for kind, found in rows.items()}
    print(table(gains))


if __name__ == "__main__":
    main()
