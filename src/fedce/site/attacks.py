"""Sites that cheat, planted in a federation to try the detector and the guard on (docs/trust.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan

from fedce.base.errors import ConfigError, nearest
from fedce.base.ranges import SCORE
from fedce.base.registry import find, full_name
from fedce.core.messages import Reply, Task
from fedce.core.site import Site
from fedce.data import SiteData
from fedce.learning.learner import Learner
from fedce.learning.metrics import DICE_ALONE, Measures
from fedce.site import doctored, forged, lies
from fedce.site.hospital import Hospital
from fedce.site.impostor import Attack, Impostor

TINY_OVERSTATED = 0.2
"""What a site of tiny updates adds to its error."""


def hospital(
    sites: Sequence[SiteData],
    name: str,
    learner: Learner,
    classes: tuple[str, ...],
    seed: int,
    plant: Mapping[str, str],
    measures: Measures = DICE_ALONE,
) -> Site:
    """The site of this name, or the impostor that is planted in its place."""
    data = next(data for data in sites if data.name == name)
    kind = plant.get(name)
    if kind is None:
        return Hospital(data, learner, classes, seed, measures)
    attack = attack_of(kind)
    if attack.is_of_one_hospital:
        first = min(other for other, its in plant.items() if _is_same(its, kind))
        data = next((other for other in sites if other.name == first), None) or _not_here(kind, first)
        data = replace(data, name=name) if attack.trains_anew else data
    elif attack.clones:
        victim = next(other for other in sites if other.name not in plant)
        data = replace(victim, name=name)
    elif attack.data is not None:
        data = attack.data(data)
    return Impostor(Hospital(data, learner, classes, seed, measures), attack, name, _sign_of(name, plant))


def _not_here(kind: str, first: str) -> SiteData:
    raise ConfigError(f"freerider.plant: {kind!r} needs the images of {first}; it is for the local engine")


def _sign_of(name: str, plant: Mapping[str, str]) -> int:
    """Colluders that come in pairs: every second one mirrors the one before."""
    return -1 if attack_of(plant[name]).is_paired and _place(name, plant) % 2 else 1


def _place(name: str, plant: Mapping[str, str]) -> int:
    """The site's number among those that do the same."""
    return sorted(site for site, kind in plant.items() if _is_same(kind, plant[name])).index(name)


def is_there(task: Task, n_rounds: int, plant: Mapping[str, str]) -> bool:
    """Whether the task's site answers; most cheats do."""
    kind = plant.get(task.site)
    there = attack_of(kind).there if kind else None
    if there is None or task.action != "train":
        return True
    return there(task, n_rounds, _place(task.site, plant))


@dataclass(frozen=True)
class Tunable:
    """An attack whose success depends on how strongly it is done.

    >>> TUNABLE["scale"].made(3).words, attack_of("scale=3").words
    ('sends its update times 3', 'sends its update times 3')
    """

    made: Callable[[float], Attack]
    chosen: float
    """The strength that is used if none is stated."""
    strengths: tuple[float, ...]
    """What `benchmarks/attack_search.py` tries: at most eight."""
    least: float = 0.0
    most: float = inf
    is_whole: bool = False

    def problem_of(self, strength: float) -> str | None:
        """What is expected instead of this strength; None if it can be used."""
        if self.least <= strength <= self.most and isfinite(strength) and not (self.is_whole and strength % 1):
            return None
        kind, most = (
            "a whole number" if self.is_whole else "a strength",
            f" to {self.most:g}" if self.most < inf else " on",
        )
        return f"{kind} from {self.least:g}{most}"


def attack_of(kind: str) -> Attack:
    """The attack of this name, perhaps with a strength (overstate=0.1), or your own at package.module:NAME."""
    name, is_stated, strength = kind.partition("=")
    if not is_stated:
        return find(kind, ATTACKS, Attack, "fedce.attacks", "freerider.plant")
    if name not in TUNABLE:
        raise ConfigError(
            f"freerider.plant: attack {name!r} takes no strength{nearest(name, TUNABLE)}; those that do: "
            + ", ".join(TUNABLE)
        )
    try:
        number = float(strength)
    except ValueError:
        number = nan
    if (expected := TUNABLE[name].problem_of(number)) is not None:
        raise ConfigError(f"freerider.plant: expected {expected}, as in {name}={TUNABLE[name].chosen:g}; got {kind!r}")
    return TUNABLE[name].made(number)


def _is_same(kind: str, other: str) -> bool:
    """Whether two sites are accomplices: they do the same, perhaps with other strengths."""
    return kind.partition("=")[0] == other.partition("=")[0]


def attack_path(kind: str) -> str:
    """The name, or the import path of an attack from an installed package (entry point fedce.attacks)."""
    return full_name(kind, ATTACKS, "fedce.attacks")


def said(
    reply: Reply,
    kind: str | None,
    sites: Sequence[str] = (),
    order: Sequence[int] = (),
    plant: Mapping[str, str] | None = None,
) -> Reply:
    """The answer of a site that does this.

    `order` says which model came at which place of a ballot: 0 is the common model, then those without each of the
    sites, last the decoy. A cheat who knows it still can't know the decoy: to the cheat it lacks an honest site.
    """
    if kind is None:
        return reply
    attack = attack_of(kind)
    if attack.votes is not None and reply.scores and len(reply.scores) == len(order):
        mine = [i for i, site in enumerate(sites, 1) if _is_same((plant or {}).get(site, ""), kind)]
        places = [order.index(i) for i in range(len(order))]
        votes = attack.votes([reply.scores[place] for place in places], mine)
        lies = tuple(SCORE.nearest(votes[i]) for i in order)
        reply = replace(reply, scores=lies)
    return reply if attack.says is None else attack.says(reply)


def _tiny(part: float) -> Attack:
    words = f"sends its update times {part:g} and claims an error {TINY_OVERSTATED:g} higher than it is"
    return Attack(words, forged.scaled(part), says=lies.overstates(TINY_OVERSTATED))


def _boast(times: float) -> Attack:
    words = f"claims {times:g} times its images and sends updates as long"
    return Attack(words, forged.scaled(times), says=lies.boasts(times))


def _vary(deviation: float) -> Attack:
    words = f"trains on one image, repeated, and makes up replicates that deviate by {deviation:g}"
    return Attack(words, data=doctored.with_one_image, says=lies.varies(deviation))


TUNABLE: Mapping[str, Tunable] = {
    "scale": Tunable(
        lambda times: Attack(f"sends its update times {times:g}", forged.scaled(times)),
        10,
        (1.2, 1.5, 2, 3, 4, 6, 10, 30),
    ),
    "pretend": Tunable(
        lambda part: Attack(f"reports {part:g} of every score", says=lies.pretends(part)),
        0.5,
        (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1),
        most=1,
    ),
    "invent": Tunable(
        lambda related: Attack(
            f"sends one random direction for ever, with noise and {related:g} of everybody's last step",
            forged.invents(related),
        ),
        0.3,
        (0, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5),
    ),
    "spread": Tunable(
        lambda times: Attack(f"multiplies its running variances by {times:g}", forged.spread(times)),
        4.5,
        (1.1, 1.2, 1.5, 2, 3, 4.5, 7, 10),
    ),
    "shift": Tunable(
        lambda deviations: Attack(
            f"moves its running means by {deviations:g} standard deviations", forged.shift(deviations)
        ),
        2.5,
        (0.05, 0.1, 0.2, 0.5, 1, 1.5, 2.5, 4),
    ),
    "overstate": Tunable(
        lambda by: Attack(f"claims an error {by:g} higher than it is", says=lies.overstates(by)),
        0.2,
        (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8),
    ),
    "tiny": Tunable(_tiny, 0.01, (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)),
    "drift": Tunable(
        lambda times: Attack(
            f"adds a held made-up direction, {times:g} times as long, to its update", forged.drifts(times)
        ),
        1,
        (0.1, 0.2, 0.4, 0.7, 1, 1.5, 2.5, 4),
    ),
    "rotate": Tunable(
        lambda turn: Attack(
            f"turns away from its honest update by {turn:g} of a right angle more in every round", forged.rotates(turn)
        ),
        0.05,
        (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5),
    ),
    "late": Tunable(
        lambda times: Attack(
            f"sends its update times {times:g} from round {forged.LATE + 1} on", forged.longer_late(times)
        ),
        3,
        (1.2, 1.5, 1.8, 2, 2.5, 3, 4, 6),
    ),
    "boast": Tunable(_boast, 16, (1.5, 2, 3, 4, 6, 8, 16, 64), least=1),
    "vary": Tunable(_vary, 0.02, (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)),
    "dilate": Tunable(
        lambda pixels: Attack(
            f"marks {pixels:g} pixels too much around everything", data=doctored.with_dilated_masks(pixels)
        ),
        3,
        (1, 2, 3, 4, 5, 6, 8, 12),
        least=1,
        is_whole=True,
    ),
    "slander": Tunable(
        lambda by: Attack(f"votes that the model is {by:g} better without any honest site", votes=lies.slander(by)),
        0.2,
        (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2),
    ),
    "praise": Tunable(
        lambda by: Attack(
            f"votes that the model is {by:g} worse without itself and its accomplice", votes=lies.praise(by)
        ),
        0.2,
        (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2),
    ),
    "leave": Tunable(
        lambda n: Attack(f"takes part in {n:g} rounds", there=lies.at_first(n)),
        3,
        (1, 2, 3, 4, 5, 7, 10, 15),
        least=1,
        is_whole=True,
    ),
    "coattail": Tunable(
        lambda times: Attack(
            f"sends everybody's last step, {times:g} times as long and with noise, without training",
            forged.rides(times),
        ),
        1.5,
        (0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5),
    ),
    "mirror": Tunable(
        lambda times: Attack(
            f"two add opposite made-up directions, {times:g} times as long, to their updates",
            forged.drifts(times),
            is_paired=True,
        ),
        1,
        (0.1, 0.2, 0.4, 0.7, 1, 1.5, 2.5, 4),
    ),
}
"""Attacks with a strength; `freerider.plant` may state it, as in overstate=0.1."""
ATTACKS: Mapping[str, Attack] = {
    **{kind: one.made(one.chosen) for kind, one in TUNABLE.items()},
    "zero": Attack("sends the model back as it came", forged.zero),
    "noise": Attack("sends noise", forged.sends_noise),
    "flip": Attack("sends its update with the sign turned", forged.scaled(-1.0)),
    "replay": Attack("trains once and sends that update for ever", forged.replays),
    "echo": Attack("sends back the global model of the round before", forged.echoes),
    "repeat": Attack("trains on one image, repeated", data=doctored.with_one_image),
    "labels": Attack("trains on inverted labels", data=doctored.with_inverted_labels),
    "inflate": Attack("claims an error of 1", says=lies.inflates),
    "collude": Attack(
        "two send opposite noise and claim an error of 1", forged.colludes, says=lies.discredits, is_paired=True
    ),
    "sybil": Attack("two members have the images of one", is_paired=True, is_of_one_hospital=True, trains_anew=True),
    "copy": Attack("two members send the same update", is_paired=True, is_of_one_hospital=True),
    "silent": Attack("leaves its error out", says=lies.keeps_quiet),
    "hide": Attack(
        "trains on one image, repeated, and leaves its replicates out", data=doctored.with_one_image, says=lies.hides
    ),
    "invert": Attack("inverts its grey values", data=doctored.with_inverted_images),
    "clone": Attack("has the images of another member", clones=True),
    "sulk": Attack("stays away for a round when its share fell", there=lies.unless_its_share_fell),
    "turns": Attack(
        "one hospital under two names, in turn",
        is_paired=True,
        is_of_one_hospital=True,
        trains_anew=True,
        there=lies.in_turn,
    ),
    "halves": Attack(
        "one hospital under two names, one after the other",
        is_paired=True,
        is_of_one_hospital=True,
        trains_anew=True,
        there=lies.in_halves,
    ),
}
