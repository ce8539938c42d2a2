"""A run's results: a function of its experiment and its ledger, and of nothing else.

The session that trains writes them to results.json; every check, report and payment works them out again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from fedce.algorithms import Algorithm, Standalone, Uniform, built_in
from fedce.base.config import Config
from fedce.base.errors import RunError
from fedce.core.ballot import FEWEST_BALLOTS, SET_REFERENCE, Ballot, Ballots, weighed_in
from fedce.core.best import best_round, smoothed
from fedce.core.messages import Evaluation, Measured
from fedce.core.presence import paid, presence_of
from fedce.guard import alarms as freerider
from fedce.record.entries import End, Round, Session
from fedce.record.ledger import Ledger, flags_by_site
from fedce.valuation.agreement import rank_stability
from fedce.valuation.fairness import fairness
from fedce.valuation.scorers import Scored, not_believed, without_votes
from fedce.valuation.uncertainty import contribution_intervals, intervals_over_rounds
from fedce.valuation.worth import FEWEST_VOTES, NO_WORTH, RULE, Attendance, has_votes, worth_of

MOST_BANDS = 8
"""In one figure, intervals of more sites would hide each other."""


def results_of(config: Config, ledger: Ledger, *, over_rounds: bool = False) -> dict[str, Any]:
    """The results that follow from a ledger with an end; from earlier formats fewer results follow.

    `over_rounds`: also how the intervals narrowed, which only the report's figure needs; it takes a second.
    """
    if (end := ledger.end) is None:
        raise RunError("the ledger has no end, so no results follow from it")
    rounds, session = ledger.rounds, ledger.of(Session)[-1]
    sites = ledger.sites
    there = presence_of(rounds, sites, drawn=config.sites_per_round is not None) if session.presence else {}
    shares = paid(end.shares, there)
    last_n_train = {site: told.n_train for done in rounds for site, told in done.sites.items()}
    found: dict[str, Any] = {
        "algorithm": config.algorithm.name,
        "data": config.data.source,
        "rounds": len(rounds) if config.patience else config.n_rounds,
        "seed": config.seed,
        "contributions": {**dict.fromkeys(sites, 0.0), **shares},
        **({"presence": there} if session.presence else {}),
        "order_settled_from": _order_settled_from(rounds),
        "initial_dice": {site: told.score for site, told in rounds[0].sites.items()} if rounds else {},
        "images": {site: about.n_images for site, about in sites.items()},
        "train_images": {site: about.n_train for site, about in sites.items()},
        "train_images_used": {**dict.fromkeys(sites, 0), **last_n_train},
        "validation_cases": {site: about.n_validation_cases for site, about in sites.items()},
        "test_cases": {site: about.n_test_cases for site, about in sites.items()},
        "rounds_unused": _rounds_unused(rounds),
        "seconds": round(sum(done.seconds for done in rounds), 2),
        "model_sha256": end.model,
        **_best(rounds, end),
        "command": session.command,
        "versions": session.versions,
    }
    if ledger.format >= 2:
        found |= _evaluated(end)
    if (algorithm := _algorithm(config, end, ledger.format)) is not None:
        n_cases = found["validation_cases"]
        found |= contribution_intervals(algorithm, rounds, shares, config.seed, n_cases, there).recorded(shares)
        if over_rounds:
            found["intervals_over_rounds"] = _intervals_over_rounds(algorithm, rounds, config.seed, n_cases)
    found |= worth_so_far(config, ledger)
    if ledger.format >= 3:
        found |= _network(config, rounds, end, found["validation_dice"])
    return found


def _best(rounds: Sequence[Round], end: End) -> dict[str, Any]:
    """After how many rounds the common model was best, and its smoothed score; empty for runs of an earlier version."""
    if end.best_round is None or not end.evaluations:
        return {}
    last = [said.validation_dice for said in end.evaluations.values()]
    scores = [*(done.mean_score for done in rounds), sum(last) / len(last)]
    return {"best_round": best_round(scores), "best_score": max(smoothed(scores))}


def worth_so_far(config: Config, ledger: Ledger) -> dict[str, Any]:
    """What each site gives to the others; empty for runs of an earlier version, which had no rule or another one."""
    session = ledger.of(Session)[-1]
    if (reason := session.no_worth) is None or session.worth_rule != RULE:
        return {}
    counts = counts_of(ledger.rounds)
    rounds = [done for done in ledger.rounds if done.ballot is not None]
    held = [done.ballot.ballot for done in rounds if done.ballot is not None]
    out = not_believed([scored for done in rounds if (scored := scored_in(done)) is not None])
    usable = [
        (done, as_one_site(ballot, done, counts))
        for done, ballot in zip(rounds, without_votes(held, out), strict=True)
        if has_votes(ballot)
    ]
    ballots = [ballot for _, ballot in usable]
    silent = Counter(site for ballot in held for site in ballot.no_vote)
    beside = {**({"not_believed": out} if out else {}), **({"no_votes": dict(silent)} if silent else {})}
    if len(ballots) >= FEWEST_BALLOTS:  # A run that is continued with fewer sites keeps what it measured.
        reason = ""
    elif not reason:
        reason = _too_few_ballots(config, ledger, len(held), len(ballots))
    if reason:
        return {"worth": {**NO_WORTH, "reason": reason, **beside}}
    reached = max(smoothed([done.mean_score for done in ledger.rounds]))
    there = {site for done in ledger.rounds for site in done.sites}
    weighed = {site for done in ledger.rounds for site, facts in done.sites.items() if facts.weight > 0}
    unmeasured = weighed - {site for ballot in ballots for site in ballot.without}
    sites = [site for site in ledger.sites if site in there - unmeasured]
    presence = presence_of(ledger.rounds, sites, drawn=config.sites_per_round is not None)
    attended = Attendance([set(done.sites) for done, _ in usable], presence, counts)
    worth = worth_of(ballots, sites, reached, config.seed, attended)
    late = {"unmeasured": sorted(unmeasured)} if unmeasured else {}
    return {"worth": {**worth.recorded, **late, **beside}}


def counts_of(rounds: Sequence[Round]) -> dict[str, float]:
    """How much of a site each name is: 1, or less if the guard found twins of it, and is surer of them later.

    It is the mean trust in the later half of the rounds in which it took part and was believed.
    """
    trust: dict[str, list[float]] = {}
    for done in rounds:
        for site, facts in done.sites.items():
            if facts.trust > 0:
                trust.setdefault(site, []).append(facts.trust)
    return {site: fmean(own[len(own) // 2 :]) for site, own in trust.items()}


def as_one_site(ballot: Ballot, done: Round, counts: Mapping[str, float]) -> Ballot:
    """The ballot with what twins carried as that of one site, also in rounds before the guard could tell."""
    then = {site: facts.trust for site, facts in done.sites.items() if facts.trust > 0}
    parts = {site: min(1.0, counts[site] / trust) for site, trust in then.items()}
    return replace(ballot, carried={site: value * parts.get(site, 1.0) for site, value in ballot.carried.items()})


def _too_few_ballots(config: Config, ledger: Ledger, n_held: int, n_usable: int) -> str:
    """Why a run in which ballots were wanted has too few that count, and what to do."""
    due = Ballots.asked_by(config)
    weights = [{site: facts.weight for site, facts in done.sites.items()} for done in ledger.rounds]
    n_small = sum(len(weighed_in(one, one)) < due.fewest for one in weights)
    if n_usable < n_held:
        return (
            f"{n_held - n_usable} of {n_held} ballots have fewer than {FEWEST_VOTES} votes about some site; let more "
            f"sites score, or {SET_REFERENCE}"
        )
    held = f"{n_held} ballot{' was' if n_held == 1 else 's were'} held, and at least {FEWEST_BALLOTS} are needed"
    if n_small:
        what_to_do = "let more sites take part" if due.on_reference else f"let more sites take part, or {SET_REFERENCE}"
        few = f"fewer than {due.fewest} sites had a weight in the common model"
        return f"{held}: in {n_small} of {len(ledger.rounds)} rounds {few}; {what_to_do}"
    return f"{held}; train more rounds, or set worth.every lower"


def scored_in(done: Round) -> Scored | None:
    """A round's ballot with what its decoy was made of; None without a decoy, or in a forged ledger."""
    if done.ballot is None or not done.ballot.decoy or not done.sites.keys() >= set(done.ballot.without):
        return None
    return Scored(done.ballot.ballot, done.round_no, {site: done.sites[site].weight for site in done.ballot.without})


def _algorithm(config: Config, end: End, format_no: int) -> Algorithm | None:
    """The algorithm behind the intervals. Code that a run names is not executed: its recorded weights stand for it."""
    if (algorithm := built_in(config, format_no)) is not None:
        return algorithm
    if end.exchanges is None:
        return None
    return Uniform() if end.exchanges else Standalone()


def _evaluated(end: End) -> dict[str, Any]:
    """The sites' evaluations of the final model."""
    evaluations = {site: said.evaluation for site, said in end.evaluations.items()}
    dice = {site: evaluation.test_dice for site, evaluation in evaluations.items()}
    return {
        "dice": dice,
        "dice_by_class": {site: dict(evaluation.test_dice_by_class) for site, evaluation in evaluations.items()},
        "dice_without": {site: evaluation.test_dice_without for site, evaluation in evaluations.items()},
        "validation_dice": {site: evaluation.validation_dice for site, evaluation in evaluations.items()},
        "dice_interval": {site: said.test_interval for site, said in end.evaluations.items()},
        "validation_interval": {site: said.validation_interval for site, said in end.evaluations.items()},
        "fairness": fairness(list(dice.values())).as_dict() if dice else {},
        **_metrics(evaluations),
        **_beside(evaluations, dice),
        # In ledgers of an earlier version, the end does not say how metrics are shown.
        **({"metrics_shown": end.content["metrics"]} if end.metrics is not None else {}),
    }


def _beside(evaluations: Mapping[str, Evaluation], dice: Mapping[str, float]) -> dict[str, Any]:
    """What sites reach alone, gain by the federation and keep; empty if no site trained alone or personalised."""
    told = {site: its.beside for site, its in evaluations.items() if its.beside is not None}
    alone = {site: its.alone for site, its in told.items() if its.alone is not None}
    found: dict[str, Any] = {}
    if alone:
        found |= {
            "alone": alone,
            "alone_interval": {site: _ends(told[site].alone_interval) for site in alone},
            "gain": {site: dice[site] - value for site, value in alone.items()},
            "gain_interval": {site: _ends(told[site].gain_interval) for site in alone},
        }
    if any(its.personal is not None for its in told.values()):
        found |= {
            "dice_common": {site: its.common for site, its in told.items()},
            "dice_personal": {site: its.personal for site, its in told.items()},
            "keeps": {site: its.keeps for site, its in told.items()},
        }
    return found


def _ends(interval: tuple[float, float] | None) -> list[float] | None:
    return list(interval) if interval else None


def _metrics(evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Metric to site, with Dice among the metrics; empty if Dice is the only one, as in earlier versions."""
    names = sorted({name for told in evaluations.values() for name in told.metrics})
    if not names:
        return {}
    told = {
        name: {site: its.metrics[name] for site, its in evaluations.items() if name in its.metrics} for name in names
    }
    dice = {site: its.test_dice for site, its in evaluations.items()}
    dice_by_class = {site: dict(its.test_dice_by_class) for site, its in evaluations.items()}

    any_interval = any(found.interval for by_site in told.values() for found in by_site.values())

    def of_all(value: Callable[[Measured], Any]) -> dict[str, Any]:
        return {name: {site: value(found) for site, found in by_site.items()} for name, by_site in told.items()}

    return {
        "metrics": {"dice": dice, **of_all(lambda found: found.mean)},
        "metrics_by_class": {"dice": dice_by_class, **of_all(lambda found: dict(found.by_class))},
        "metrics_undefined": of_all(lambda found: dict(found.undefined)),
        "metrics_unit": of_all(lambda found: found.unit),
        # Ledgers of earlier versions hold no intervals of metrics.
        **({"metrics_interval": of_all(lambda found: _ends(found.interval))} if any_interval else {}),
    }


def _network(config: Config, rounds: Sequence[Round], end: End, validation_dice: Mapping[str, float]) -> dict[str, Any]:
    """What follows from the network's size, or from other facts that the session recorded with the end."""
    detects = config.freerider.detect and end.exchanges
    scores = freerider.history(rounds, validation_dice, config.freerider.score) if detects else {}
    alarms = freerider.alarms(rounds, end.n_parameters) if detects else []
    return {
        "reconstruction": dict(end.reconstruction),
        **({} if end.banzhaf is None else {"banzhaf": dict(end.banzhaf)}),
        "freerider": {
            site: {"scores": values, "alarms": [asdict(alarm) for alarm in alarms if alarm.site == site]}
            for site, values in scores.items()
        },
        "flags": _flags(rounds, alarms),
        "n_parameters": end.n_parameters,
        "megabytes": sum(done.n_models for done in rounds) * 4 * end.n_values / 1e6,
        "device": end.device,
        **({"example_dice": dict(end.example_dice)} if end.example_dice is not None else {}),
    }


def _intervals_over_rounds(
    algorithm: Algorithm, rounds: Sequence[Round], seed: int, n_cases: Mapping[str, int]
) -> list[dict[str, Any]]:
    if len(n_cases) > MOST_BANDS:
        return []
    found = intervals_over_rounds(algorithm, rounds, seed, n_cases)
    return [{"round": round_no + 1, "low": at.low, "high": at.high} for round_no, at in found.items()]


def _order_settled_from(rounds: Sequence[Round]) -> int | None:
    """The round (from 1) after which the order of the contributions no longer changed; None without rounds."""
    sites = sorted({site for done in rounds for site in done.sites})
    last, shares = dict.fromkeys(sites, 0.0), []
    for done in rounds:  # A site that did not take part has the share that was last recorded.
        last |= done.shares
        shares.append([last[site] for site in sites])
    return rank_stability(shares).settled_from + 1 if rounds and len(sites) > 1 else None


def _rounds_unused(rounds: Sequence[Round]) -> dict[str, int]:
    """Sites whose replies the guard did not use, with the number of rounds."""
    unused = Counter(site for done in rounds for site, facts in done.sites.items() if facts.trust == 0)
    return dict(sorted(unused.items()))


def _flags(rounds: Sequence[Round], alarms: Sequence[freerider.Alarm]) -> dict[str, list[str]]:
    """The flags in the ledger, and the free-rider detector's alarms."""
    flags = flags_by_site(rounds)
    for alarm in alarms:
        flags.setdefault(alarm.site, []).append(freerider.alarm_text(alarm.what, alarm.round_no))
    return flags
