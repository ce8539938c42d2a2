"""Attacks on the guard with a seed and on data that were not used to choose its thresholds.

Guarded FedCE for 30 rounds, seed 7: site 6, and sites 1 and 6, of fundus6; site 3, and sites 3 and 6, of prostate6;
with a folder of sites, also its third site. The attackers' gain, the share that the honest site with the highest
contribution keeps, and the change of the mean test Dice are compared with the same run without the attack; for sybil
and copy, with a run in which the copied site takes part once.

    python -m benchmarks.held_out_attacks --store STORE [FOLDER]
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedce.base.config import Config, parse
from fedce.base.tables import BUILT_IN
from fedce.data import load_sites
from fedce.questions.jobs import Store
from fedce.site.attacks import ATTACKS

SINGLE: tuple[str, ...] = ("zero", "noise", "flip", "scale", "replay", "echo", "labels", "inflate", "repeat")
PAIRED: tuple[str, ...] = ("collude", "sybil", "copy")
WHO = {"fundus6": (("site6",), ("site1", "site6")), "prostate6": (("site3",), ("site3", "site6"))}
SEED, N_ROUNDS = 7, 30


@dataclass(frozen=True)
class Case:
    data: str
    kind: str
    attackers: tuple[str, ...]

    def config(self, is_attacked: bool) -> Config:
        data = {"source": self.data, **({} if self.data in BUILT_IN else {"size": 64})}
        plant = dict.fromkeys(self.attackers, self.kind) if is_attacked else {}
        left = (
            self.attackers[1:]
            if self.kind in [kind for kind, attack in ATTACKS.items() if attack.is_of_one_hospital] and not is_attacked
            else ()
        )
        return parse({"seed": SEED, "rounds": N_ROUNDS, "data": data, "freerider": {"plant": plant}, "leave_out": left})


def cases(folder: str | None) -> list[Case]:
    who: dict[str, tuple[tuple[str, ...], ...]] = dict(WHO)
    if folder:
        who[folder] = ((load_sites(folder)[2].name,),)
    return [
        Case(data, kind, attackers)
        for data, groups in who.items()
        for attackers in groups
        for kind in (*SINGLE, *(PAIRED if len(attackers) > 1 else ()))
    ]


def table(store: Store, rows: Sequence[Case]) -> str:
    header = "| data | attack | attackers | gain % | rare keeps % | Dice | honest sites flagged |"
    lines = [header, "|---|---|---|---:|---:|---:|---|"]
    store.run([case.config(is_attacked) for case in rows for is_attacked in (False, True)])
    for case in rows:
        honest, attacked = (store.finished(case.config(is_attacked)) for is_attacked in (False, True))
        assert honest is not None
        assert attacked is not None
        before, after = honest.contributions, attacked.contributions
        rare = max((site for site in before if site not in case.attackers), key=lambda site: before[site])
        gain = sum(after[site] for site in case.attackers) / sum(before[site] for site in case.attackers) - 1
        dice = fmean(attacked.dice.values()) - fmean(honest.dice.values())
        flagged = [site for site in attacked.values["flags"] if site not in case.attackers]
        kept = after[rare] / before[rare]
        who = f"| {Path(case.data).name} | {case.kind} | {', '.join(case.attackers)} |"
        lines.append(
            f"{who} {100 * gain:+.1f} | {100 * kept:.1f} | {100 * dice:+.1f} | {', '.join(flagged) or 'none'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--store", type=Path, required=True)
    given = parser.parse_args()
    print(table(Store(given.store), cases(given.folder)))


if __name__ == "__main__":
    main()
