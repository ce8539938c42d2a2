"""The round loop: ask the sites, check their answers, let the algorithm aggregate. There is no other loop."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from fedce.base.errors import ReplyError
from fedce.core.algorithm import Algorithm, State
from fedce.core.ballot import Ballot, weighed_in
from fedce.core.best import best_round, has_stalled
from fedce.core.draw import draws_of
from fedce.core.messages import Reply
from fedce.core.packing import rounded
from fedce.core.params import Layout, Vector, cosine, inner_products, sketch
from fedce.core.recorded import Flag
from fedce.federation.asking import CheckedAsk, Engine, Rules, told
from fedce.guard.border import problem_of
from fedce.learning.metrics import DICE_ALONE, Measures
from fedce.record.attendance import ABSENT, EXPELLED, LEFT_OUT, NO_REPLY, NOT_DRAWN, NOT_THERE


@dataclass(frozen=True)
class Round:
    """What happened in one round."""

    round_no: int
    state: State
    """The state after the round."""
    asked: tuple[str, ...]
    """Sites that were to take part."""
    absent: tuple[str, ...]
    """Sites that could not be drawn."""
    replies: Mapping[str, Reply]
    """The usable replies, without the models."""
    rejected: Mapping[str, str]
    """Site to the reason for rejecting its reply."""
    flags: Mapping[str, tuple[Flag, ...]]
    harms: Mapping[str, float]
    """By how much a site's running statistics lower the model's score at the other sites, if this was measured."""
    far: Mapping[str, float]
    """Sites whose running statistics come from no images, and how far they are from the others'."""
    similarity: Mapping[str, float | None]
    """Cosine of each site's update with the others' together, if the free-rider detector is on; None if undefined."""
    similarity_global: Mapping[str, float | None]
    """Cosine of each site's update with the common model's change in the round, if the detector is on."""
    sketches: Mapping[str, list[float]]
    """Sketches of the sites' updates, and under "" of the model that they started from, if the detector is on."""
    n_models: int
    """Number of models that were carried to the sites and back."""
    seconds: float
    ballot: Ballot | None = None
    """How the sites scored models that lack one of them, if this was measured."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Sites that may no longer take part, with the reason."""
    drawn: Mapping[str, str] | None = None
    """If the round is drawn for an audit: the files that are kept of it, with their digests."""

    @property
    def shares(self) -> Mapping[str, float]:
        return self.state.shares

    @property
    def mean_score(self) -> float:
        """Mean validation score of the model that this round started from."""
        return mean_score_of(self.replies)


def mean_score_of(replies: Mapping[str, Reply]) -> float:
    scores = [reply.score for reply in replies.values() if reply.score is not None]
    return sum(scores) / len(scores)


def rounds(
    algorithm: Algorithm, state: State, engine: Engine, n_rounds: int, rules: Rules | None = None
) -> Iterator[Round]:
    """Run the rounds that are left."""
    rules = rules or Rules()
    draw = rules.draw
    has_common_model = algorithm.traits.exchanges and not algorithm.traits.personal
    while state.round_no < n_rounds and not has_stalled(state.scores, rules.patience):
        start = perf_counter()
        gone = rules.gone(state.round_no)
        out = (*rules.leave_out, *state.expelled, *gone)
        everybody = tuple(site for site in engine.sites(state.sites) if site not in out)
        if not everybody:
            raise ReplyError(f"round {state.round_no + 1}: no site is left ({_listed(gone) or 'all are expelled'})")
        draws = draws_of(everybody, state.draws)
        # A round that is too small without the absent sites waits for them, as it does if no sites are drawn.
        here = engine.here(everybody) if draw else everybody
        here = here if len(here) >= rules.min_sites else everybody
        asked = draw.sites({site: draws[site] for site in here}, state.round_no) if draw else everybody
        persist = rules.persist(state.round_no)
        checked = CheckedAsk(
            engine, rules, algorithm.traits.exchanges, persist, state.shares, state.params, cleared=state.cleared
        )
        start_model = state.params.trainable
        before = {"": sketch(start_model)} if rules.detect else {}
        after = algorithm.round(replace(state, sites=asked), checked.ask)
        if rules.pack == "fp16" and algorithm.traits.exchanges:
            params, rest = rounded(state.params, after.params, state.rest)
            after = replace(after, params=params, rest=rest)
        ballot = _ballot(algorithm, after, checked, rules)
        about = ballot.without if ballot else ()
        expelled = (*state.expelled, *(site for site in asked if site not in after.sites))
        sites = tuple(site for site in everybody if site not in expelled)
        scores = (*state.scores, mean_score_of(checked.replies))
        is_best = has_common_model and best_round(scores) == len(scores) - 1
        round_no, state = (
            state.round_no,
            replace(
                after,
                sites=sites,
                expelled=expelled,
                strangers=checked.strangers,
                cleared=checked.cleared,
                shortened=checked.shortened,
                scores=scores,
                best=state.params if is_best else state.best,
                on_ballots={**state.on_ballots, **{site: state.on_ballots.get(site, 0) + 1 for site in about}},
            ),
        )
        if draw:
            state = replace(state, draws={**draws, **{site: draws[site] + 1 for site in asked}})
        similarity = similarity_to_others(checked.updates, state.rho)
        yield Round(
            round_no=round_no,
            state=state,
            asked=asked,
            absent=tuple(site for site in everybody if site not in here),
            replies=checked.replies,
            rejected=checked.rejected,
            flags=checked.flags,
            harms=checked.harms,
            far=checked.far,
            similarity=similarity,
            similarity_global=similarity_to_global(checked.updates, state.params.trainable, start_model),
            sketches={site: sketch(update) for site, update in checked.updates.items()} | before,
            n_models=checked.n_models,
            seconds=perf_counter() - start,
            ballot=ballot,
            gone=gone,
            drawn=checked.drawn,
        )


def _listed(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {reason}" for site, reason in reasons.items())


def _ballot(algorithm: Algorithm, after: State, checked: CheckedAsk, rules: Rules) -> Ballot | None:
    """The round's ballot, if one is due; `after` is the state after the round."""
    round_no, sites = after.round_no - 1, sorted(checked.replies)
    if rules.ballots is None or not rules.ballots.is_due(round_no, weighed_in(after.rho, sites), after.on_ballots):
        return None
    tasks = [replace(algorithm.task(after, site), round_no=round_no) for site in rules.ballots.scorers_of(sites)]
    return checked.ballot(tasks, after)


def missing_of(done: Round, members: Iterable[str], leave_out: Sequence[str]) -> dict[str, str]:
    """Members that have no part in a round, with the reason; a rejected reply has its reason elsewhere."""
    reasons = {
        LEFT_OUT: leave_out,
        NO_REPLY: done.asked,
        EXPELLED: done.state.expelled,
        ABSENT: done.absent,
        NOT_DRAWN: done.state.draws,
    }
    return {
        site: done.gone.get(site) or next((reason for reason, sites in reasons.items() if site in sites), NOT_THERE)
        for site in members
        if site not in (*done.replies, *done.rejected)
    }


def similarity_to_others(updates: Mapping[str, Vector], rho: Mapping[str, float]) -> dict[str, float | None]:
    """cos(delta_i, sum of rho_j delta_j over the others); None if either has no direction."""
    if not updates:
        return {}
    products = inner_products(list(updates.values()))
    c = np.array([rho.get(site, 0.0) for site in updates])
    result: dict[str, float | None] = {}
    for i, site in enumerate(updates):
        others = np.where(np.arange(len(c)) == i, 0.0, c)
        norms = np.sqrt(products[i, i] * max(float(others @ products @ others), 0.0))
        result[site] = float(products[i] @ others / norms) if norms > 0 else None
    return result


def similarity_to_global(updates: Mapping[str, Vector], after: Vector, before: Vector) -> dict[str, float | None]:
    """cos(delta_i, w_next - w); None if either has no direction."""
    if not updates:
        return {}
    way = after - before
    return {site: cosine(update, way) for site, update in updates.items()}


def evaluate(
    algorithm: Algorithm,
    state: State,
    engine: Engine,
    sites: Iterable[str],
    tell_all: bool = False,
    measures: Measures = DICE_ALONE,
    layout: Layout | None = None,
    drawn: tuple[int, ...] = (),
) -> tuple[dict[str, Reply], dict[str, str]]:
    """Evaluate the model that each of these sites would use on its data; the sites also get their final share.

    Returns the usable replies, and the reasons why others are not usable. `measures` are the metrics that the sites are
    to answer with; `layout` is that of the models which the sites send, if it is not the common model's; `drawn`
    are the rounds that are drawn for an audit.
    """
    tasks = [
        replace(algorithm.task(state, site), action="evaluate", shares=told(state.shares, site, tell_all), drawn=drawn)
        for site in sites
    ]
    by_site, usable, rejected = {task.site: task for task in tasks}, {}, {}
    for reply in sorted(engine.ask(tasks), key=lambda reply: reply.site):
        reason = problem_of(reply, by_site.get(reply.site), layout=layout)
        if reason is None and reply.evaluation is not None:
            reason = measures.problem_of(reply.evaluation.metrics)
        if reason is None:
            usable[reply.site] = reply
        else:
            rejected[reply.site] = reason
    return usable, rejected
