"""Sites that cheat: what they gain, what the honest rare site loses, and how the model changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import fmean

from fedce.base.config import Config
from fedce.base.tables import AlgorithmConfig, FreeRiderConfig, Guard, WorthConfig
from fedce.base.words import install_command
from fedce.federation.session import Result
from fedce.site.attacks import ATTACKS, attack_of
from fedce.studies.base import Cell, Context, Outcome, Study, Table, results_alone

TITLE = "Robustness: sites that cheat"
SINGLE, PAIRED = ({kind: a.words for kind, a in ATTACKS.items() if a.is_paired is paired} for paired in (False, True))
WHAT = {**SINGLE, **PAIRED}
UNDETECTABLE = ("pretend", "invent")
NVFLARE = "fedce.engines.nvflare.theirs:NVFlareFedCE"
WORTH = "worth"
"""The key of what each site gives, in the guarded run: the share that `fedce allocate` pays."""
MOST_GAIN, MOST_GAIN_OF_WORTH, MOST_OF_A_SEED = 0.25, 0.10, 0.15
"""Aims: the most that an attacker gains of FedCE's shares, of worth on average, and of worth with any seed."""
LEAST_KEPT, MOST_LOSS = 0.95, 0.01
"""Aims: the least that the rare site keeps, and the most that Dice loses."""


@dataclass(frozen=True)
class Method:
    title: str
    table: AlgorithmConfig
    guard: Guard = "off"


def methods() -> dict[str, Method]:
    found = {
        "nvflare": Method("NVFlare 2.9's FedCE (sum)", AlgorithmConfig(name=NVFLARE)),
        "letter": Method("FedCE to the letter", AlgorithmConfig(name="fedce")),
        "guarded": Method("FedCE, guarded", AlgorithmConfig(name="fedce"), guard="standard"),
    }
    return {key: method for key, method in found.items() if key != "nvflare" or find_spec("nvflare")}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    kind: str
    attackers: tuple[str, ...]

    @property
    def absent(self) -> tuple[str, ...]:
        """Sites left out of the honest run for comparison: of one site under several names, only one name stays."""
        return self.attackers[1:] if attack_of(self.kind).is_of_one_hospital else ()


def cases(names: Sequence[str]) -> list[Case]:
    """Each attack with one attacker, and with two if two are a minority."""
    found = [Case(kind, (names[1],)) for kind in SINGLE]
    if len(names) >= 5:
        found += [Case(kind, (names[1], names[3])) for kind in (*SINGLE, *PAIRED)]
    return found


def config_of(context: Context, method: Method, seed: int, case: Case | None, leave_out: Sequence[str] = ()) -> Config:
    plant = dict.fromkeys(case.attackers, case.kind) if case else {}
    ballots = {} if method.guard == "standard" else {"worth": WorthConfig(every=0)}
    return context.config.model_copy(
        update={
            "algorithm": method.table,
            "seed": seed,
            "guard": method.guard,
            "freerider": FreeRiderConfig(plant=plant),
            "leave_out": tuple(leave_out),
            **ballots,
        }
    )


def trainings(context: Context) -> list[Config]:
    found: list[Config] = []
    rows = cases(context.names)
    for seed in context.seeds:
        for method in methods().values():
            found += [config_of(context, method, seed, None, left) for left in {case.absent for case in rows}]
            found += [config_of(context, method, seed, case) for case in rows]
        guarded = methods()["guarded"]
        found += [config_of(context, guarded, seed, None, attackers) for attackers in {case.attackers for case in rows}]
    return found


Shares = Callable[[Result], Mapping[str, float]]
"""The shares of a run that an attacker may want to raise."""


def contributions_of(result: Result) -> Mapping[str, float]:
    return result.contributions


def worth_of(result: Result) -> Mapping[str, float]:
    """What each site gives; a member that no ballot was about gives nothing."""
    found: Mapping[str, float] = result.values["worth"]["share"]
    return {site: found.get(site, 0.0) for site in result.contributions}


def has_worth(context: Context, rows: Sequence[Case]) -> bool:
    """Whether every guarded run says what each site gives; small federations and runs of few rounds do not."""
    guarded = methods()["guarded"]
    pairs = [(None, left) for left in {case.absent for case in rows}] + [(case, ()) for case in rows]
    configs = [config_of(context, guarded, seed, case, left) for seed in context.seeds for case, left in pairs]
    return all((context.result(config).values.get("worth") or {}).get("share") for config in configs)


@dataclass(frozen=True)
class Effect:
    """The effect of an attack, mean over the seeds."""

    gain: float
    """Increase of the attackers' share over their honest share, as a fraction of the honest share."""
    kept: float
    """The part of its share that the honest rare site keeps; of a clone, the site whose images it has."""
    dice: float
    """Change of the mean test Dice."""
    worst_gain: float
    """The largest gain with any seed."""


def effect(context: Context, method: Method, case: Case, shares: Shares = contributions_of) -> Effect:
    gains, kept, dice = [], [], []
    for seed in context.seeds:
        honest = context.result(config_of(context, method, seed, None, case.absent))
        attacked = context.result(config_of(context, method, seed, case))
        before, after = shares(honest), shares(attacked)
        honest_sites = [site for site in before if site not in case.attackers]
        rare = honest_sites[0] if attack_of(case.kind).clones else max(honest_sites, key=before.__getitem__)
        gains.append(sum(after[site] for site in case.attackers) / sum(before[site] for site in case.attackers) - 1)
        kept.append(after[rare] / before[rare])
        dice.append(fmean(attacked.dice.values()) - fmean(honest.dice.values()))
    return Effect(fmean(gains), fmean(kept), fmean(dice), max(gains))


def evaluate(context: Context) -> Outcome:
    rows, compared = cases(context.names), methods()
    found = {key: {case: effect(context, method, case) for case in rows} for key, method in compared.items()}
    titles = {key: method.title for key, method in compared.items()}
    if has_worth(context, rows):
        titles[WORTH] = "Worth, guarded"
        found[WORTH] = {case: effect(context, compared["guarded"], case, worth_of) for case in rows}
    table = Table(
        "attacks",
        "Share gained by the attackers (%), share kept by the honest site with the highest share (%; where a site is "
        "cloned, by that site), and change of the mean test Dice (points); each is compared with a run of the same "
        "method with honest sites only. Worth is what each site gives to the others in the run of guarded FedCE.",
        [
            "attack",
            "attackers",
            *(f"{title}: {what}" for title in titles.values() for what in ("gain", "rare keeps", "Dice")),
        ],
        [
            [case.kind, str(len(case.attackers))] + [cell for key in titles for cell in _cells(found[key][case])]
            for case in rows
        ],
        digits=1,
        n_keys=2,
    )
    absent = Table(
        "absent",
        "Mean test Dice (points) of the guarded run with honest sites only, and its change when the attackers are "
        "absent: no defence can give back this loss.",
        ["absent", "Dice"],
        [
            [", ".join(left) or "nobody", _absent_dice(context, left)]
            for left in ((), *sorted({case.attackers for case in rows}))
        ],
    )
    kinds = Table(
        "kinds",
        "What the cheating site does in each attack.",
        ["attack", "what the site does"],
        [[kind, WHAT[kind]] for kind in dict.fromkeys(case.kind for case in rows)],
    )
    return Outcome("robustness", TITLE, _findings(found, rows, titles), [table, absent, kinds])


def _cells(found: Effect) -> list[Cell]:
    return [100 * found.gain, 100 * found.kept, 100 * found.dice]


def _absent_dice(context: Context, left: Sequence[str]) -> float:
    guarded = methods()["guarded"]

    def mean(absent: Sequence[str]) -> float:
        results = [context.result(config_of(context, guarded, seed, None, absent)) for seed in context.seeds]
        return 100 * fmean(fmean(result.dice.values()) for result in results)

    return mean(left) - mean(()) if left else mean(())


def _findings(found: Mapping[str, Mapping[Case, Effect]], rows: Sequence[Case], titles: Mapping[str, str]) -> list[str]:
    guarded = found["guarded"]
    countable = [case for case in rows if case.kind not in UNDETECTABLE]
    sentences = []
    for key, title in titles.items():
        # A lie about the model's own service, or a made-up direction, pays nothing in worth: there every row counts.
        tried = list(rows) if key == WORTH else countable
        effects = [found[key][case] for case in tried]
        best = max(tried, key=lambda case: found[key][case].gain)
        most = MOST_GAIN_OF_WORTH if key == WORTH else MOST_GAIN
        sentences.append(
            f"{title}: {_n(e.gain <= most for e in effects)} attacks gain at most {_percent(most)}; "
            f"the most successful gains {_percent(found[key][best].gain, '+')} ({_name(best)}). The rare site keeps at "
            f"least {_percent(LEAST_KEPT)} of its share in {_n(e.kept >= LEAST_KEPT for e in effects)}; the mean Dice "
            f"falls by at most {100 * MOST_LOSS:.0f} point in {_n(e.dice >= -MOST_LOSS for e in effects)}."
        )
    tried = countable
    worst = max(tried, key=lambda case: guarded[case].worst_gain)
    sentences.append(
        f"With the guard, the highest gain of any seed is {_percent(guarded[worst].worst_gain, '+')} ({_name(worst)})."
    )
    if WORTH in found:
        of_a_seed = {case: found[WORTH][case].worst_gain for case in rows}
        highest = max(rows, key=lambda case: of_a_seed[case])
        sentences.append(
            f"Of worth, {_n(gain <= MOST_OF_A_SEED for gain in of_a_seed.values())} attacks gain at most "
            f"{_percent(MOST_OF_A_SEED)} with any seed; the most is {_percent(of_a_seed[highest], '+')} "
            f"({_name(highest)})."
        )
    lost = [case for case in tried if guarded[case].dice < -MOST_LOSS]
    if lost:
        sentences.append(
            f"With the guard, the mean Dice still falls by more than {100 * MOST_LOSS:.0f} point in: "
            + ", ".join(f"{_name(case)} {100 * guarded[case].dice:+.1f}" for case in lost)
            + ". The second table shows how much of this loss comes from the attackers' missing images."
        )
    limits = [f"{_name(case)} {_percent(guarded[case].gain, '+')}" for case in rows if case.kind in UNDETECTABLE]
    sentences.append(
        f"Not detectable, and not counted above: {', '.join(limits)}. A site that always reports that the model serves "
        "it badly, or always sends the same made-up direction, looks like a rare site without a view of its images."
    )
    if "nvflare" not in found:
        sentences.append(f"NVFlare is not installed here ({install_command('nvflare')}), so its column is missing.")
    return sentences


def _n(holds: Iterable[bool]) -> str:
    each = list(holds)
    return f"{sum(each)} of {len(each)}"


def _percent(part: float, sign: str = "") -> str:
    return f"{100 * part:{sign}.0f} %"


def _name(case: Case) -> str:
    return f"{case.kind} x{len(case.attackers)}"


STUDY = Study(TITLE, trainings, evaluate, results_alone)
