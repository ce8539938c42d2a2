"""The questions of one round: passes on usable answers, and notes why others are not usable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fedce.base.errors import ReplyError
from fedce.base.tables import Pack
from fedce.core.algorithm import Cleared, State
from fedce.core.ballot import REFERENCE, Ballot, Ballots, carried_by, models_without
from fedce.core.decoys import DECOY, Drawn
from fedce.core.draw import Draw
from fedce.core.messages import MAX_MODELS, Reply, Task
from fedce.core.params import Params, Vector
from fedce.core.recorded import Flag
from fedce.federation.challenge import Challenge
from fedce.guard.border import (
    FAR_STATISTICS,
    HARMFUL_STATISTICS,
    SHORTENED,
    STANDARD,
    Limits,
    flags_of,
    outliers_of,
    problem_of,
    replicates_missing,
    shortened,
    trained_of,
    weights_before,
)
from fedce.guard.statistics import Trial, is_harmful, still_cleared, trial_of, without_statistics
from fedce.record.attendance import NO_REPLY

Judge = Callable[[Sequence[Params]], tuple[float, ...]]
"""Scores models on images of the coordinator's."""


class Engine(Protocol):
    """Carries tasks to sites and replies back; it holds no mathematics and no defaults.

    >>> class Refusing:
    ...     sites = here = lambda self, names: tuple(names)
    ...     ask = lambda self, tasks: []
    >>> Refusing().sites(["north", "south"])
    ('north', 'south')
    """

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        """Sites to be asked in the next round: the known ones, and those that have joined since."""

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        """The sites among these that can be reached now; only they are drawn, if not all sites take part."""

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        """Replies in any order, perhaps fewer than tasks. A reply's model is valid until the next training is asked."""


@dataclass(frozen=True)
class Rules:
    """How the loop runs, for any algorithm."""

    min_sites: int = 2
    """The run ends if a round has fewer usable replies."""
    persist: Callable[[int], bool] = lambda round_no: False
    """Whether the sites save their memory before the end of a round."""
    detect: bool = False
    """Record what the free-rider detector needs."""
    leave_out: Sequence[str] = ()
    gone: Callable[[int], Mapping[str, str]] = lambda round_no: {}
    """Sites that may not take part in a round, with the reason: they withdrew, or their key is revoked."""
    tell_all: bool = False
    """Send every site the contributions of all sites, not only its own."""
    limits: Limits | None = STANDARD
    draw: Draw | None = None
    """Draws the sites of a round, if not all take part in every round."""
    patience: int | None = None
    """Stop when the smoothed validation score has not risen for this many rounds."""
    ballots: Ballots | None = None
    """When sites score models that lack one of them; None: never."""
    judge: Judge | None = None
    """Scores models on a reference set at the coordinator, instead of the sites."""
    challenge: Challenge = field(default_factory=Challenge)
    """Which rounds are drawn for an audit; by default none."""
    n_cases: Callable[[str], int] = lambda site: 0
    """Validation cases of a site, as it said when it joined; 0 if that is not known."""
    pack: Pack = "none"
    """With fp16, the common model's steps have 16-bit numbers, as the sites' updates have."""
    secret: str = ""
    """What the decoys of ballots and the order of their models are drawn from."""


@dataclass
class CheckedAsk:
    """The algorithm's `ask` for one round: passes on usable answers, and notes why others are not usable."""

    engine: Engine
    rules: Rules
    needs_model: bool
    persist: bool
    shares: Mapping[str, float]
    """Contributions so far."""
    start: Params
    """The common model before the round."""
    replies: dict[str, Reply] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    flags: dict[str, tuple[Flag, ...]] = field(default_factory=dict)
    updates: dict[str, Vector] = field(default_factory=dict)
    models: dict[str, Params] = field(default_factory=dict)
    """The models that the algorithm gets to see."""
    harms: dict[str, float] = field(default_factory=dict)
    far: Mapping[str, float] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()
    """Sites whose running statistics are not used."""
    cleared: Mapping[str, Cleared] = field(default_factory=dict)
    """Running statistics that the other sites found harmless in the last rounds."""
    shortened: tuple[str, ...] = ()
    """Sites whose update was too long."""
    n_models: int = 0
    drawn: dict[str, str] | None = None
    """If the round is drawn for an audit: the files that are kept of it, with their digests."""

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        by_site = {
            task.site: replace(
                task,
                persist=self.persist,
                score_local=task.score_local or self.rules.detect,
                shares=told(self.shares, task.site, self.rules.tell_all),
                drawn=self.rules.challenge.before(task.round_no),
            )
            for task in tasks
        }
        # Sorted, because floating-point sums depend on order and networks do not keep it.
        came = sorted(self.engine.ask(list(by_site.values())), key=lambda reply: reply.site)
        if tasks[0].action == "train":
            self.drawn = self.rules.challenge.keep(self.start, by_site, came)
        sound: list[Reply] = []
        for reply in came:
            reason = problem_of(reply, by_site.get(reply.site), self.needs_model)
            if reason is None and sound and reply.site == sound[-1].site:
                reason = "replied twice"
            if reason is None and self.rules.limits is not None:
                reason = replicates_missing(reply, self.rules.n_cases(reply.site))
            if reason is None:
                sound.append(reply)
            else:
                self.rejected[reply.site] = reason
        outliers = outliers_of(sound, by_site, self.rules.limits.max_length) if self.rules.limits else {}
        self.rejected |= outliers
        usable = [reply for reply in sound if reply.site not in outliers]
        if self.rules.limits:
            short = shortened(usable, by_site, self.rules.limits.max_length)
            self.shortened = tuple(short)
            usable = [replace(reply, params=short.get(reply.site, reply.params)) for reply in usable]
        if tasks[0].action == "train":
            usable = self._with_useful_statistics(usable, by_site)
            for reply in usable:
                task = by_site[reply.site]
                long = (SHORTENED,) if reply.site in self.shortened else ()
                if flags := flags_of(reply, task) + long + self._about_statistics(reply.site):
                    self.flags[reply.site] = flags
                self.replies[reply.site] = replace(reply, params=None)
                if reply.params is not None:
                    self.models[reply.site] = reply.params
                if self.rules.detect and reply.params is not None:
                    self.updates[reply.site] = reply.params.trainable - task.params.trainable
        returned = sum(reply.params is not None for reply in usable)
        # If no model comes back, as in Standalone, no model needs to be sent either.
        self.n_models += len(tasks) + returned if returned else len(tasks) * len(tasks[0].models)
        if len(usable) < min(self.rules.min_sites, len(tasks)):
            silent = by_site.keys() - self.rejected.keys() - {reply.site for reply in usable}
            reasons = "; ".join(
                f"{site}: {reason}"
                for site, reason in {**self.rejected, **dict.fromkeys(sorted(silent), "no reply")}.items()
            )
            raise ReplyError(
                f"round {tasks[0].round_no + 1}: {len(usable)} usable replies, "
                f"at least {self.rules.min_sites} needed ({reasons})"
            )
        return usable

    def _with_useful_statistics(self, usable: list[Reply], tasks: Mapping[str, Task]) -> list[Reply]:
        """The replies; running statistics that harm the other sites are replaced by the round's median ones."""
        trained = trained_of(usable, tasks)
        if self.rules.limits is None or not self.rules.limits.statistics or not trained:
            return usable
        starts = {site: task.params for site, task in tasks.items()}
        round_no = trained[0].round_no
        self.cleared = still_cleared(self.cleared, round_no)
        trial = trial_of(trained, starts, weights_before(trained, tasks), self.cleared)
        if trial is None:
            return usable
        self.far = trial.far
        scores = self._scores(trial, [tasks[reply.site] for reply in trained])
        self.harms = trial.harms(scores)
        harmful = [site for site, harm in self.harms.items() if is_harmful(harm, not tasks[site].has_its_statistics)]
        self.strangers = (*trial.far, *harmful)
        asked = (*trial.sites, *trial.far)
        before = {site: found for site, found in self.cleared.items() if site not in asked}
        self.cleared = before | trial.harmless(self.harms, scores)
        tamed = without_statistics(trained, self.strangers)
        return [replace(reply, params=tamed.get(reply.site, reply.params)) for reply in usable]

    def _scores(self, trial: Trial, tasks: Sequence[Task]) -> dict[str, tuple[float, ...]]:
        """The scores that the round's sites give to a trial's models; a site that does not answer has no vote."""
        if not trial.models:
            return {}
        return {site: reply.scores for site, reply in self._votes(tasks, trial.models)[0].items()}

    def _votes(self, tasks: Sequence[Task], models: Sequence[Params]) -> tuple[dict[str, Reply], dict[str, str]]:
        """The usable answers of sites that are asked to score models, and why the others have none."""
        asked = [replace(task, action="score", models=tuple(models), persist=False) for task in tasks]
        self.n_models += len(asked) * len(models)
        answers = {reply.site: reply for reply in self.engine.ask(asked)}
        problems = {
            task.site: problem_of(answers[task.site], task) if task.site in answers else NO_REPLY for task in asked
        }
        usable = {site: answers[site] for site, problem in problems.items() if problem is None}
        return usable, {site: problem for site, problem in problems.items() if problem is not None}

    def ballot(self, tasks: Sequence[Task], after: State) -> Ballot:
        """How these tasks' sites, or the judge, score the common model and the models that lack a site."""
        mean, trust = after.params, {site: facts.get("trust", 1.0) for site, facts in after.measured.items()}
        lacking = models_without(mean, self.models, after.rho)
        carried = carried_by({site: self.models[site] for site in lacking}, self.start, trust)
        models = [mean, *lacking.values()]
        if self.rules.judge is not None:
            return Ballot(tuple(lacking), {REFERENCE: self.rules.judge(models)}, carried)
        weights = {site: after.rho[site] for site in lacking}
        drawn = Drawn.of(self.rules.secret, after.round_no - 1, weights)
        models = drawn.sent([*models, drawn.decoy(mean, list(lacking.values()))])
        scores: dict[str, tuple[float, ...]] = {task.site: () for task in tasks}
        signed: dict[str, tuple[Mapping[str, str], ...]] = {task.site: () for task in tasks}
        no_vote: dict[str, str] = {}
        for start in range(0, len(models), MAX_MODELS):
            left = [task for task in tasks if task.site in scores]
            found, silent = self._votes(left, models[start : start + MAX_MODELS])
            no_vote |= silent
            # A site that does not answer to all models has no vote.
            scores = {site: (*scores[site], *reply.scores) for site, reply in found.items()}
            signed = {site: (*signed[site], *([reply.signed] if reply.signed else [])) for site, reply in found.items()}
        signed = {site: own for site, own in signed.items() if own and site in scores}
        ordered = {site: drawn.in_order(own) for site, own in scores.items()}
        own_scores = {site: tuple(own[:-DECOY]) for site, own in ordered.items()}
        decoy = {site: own[-DECOY] for site, own in ordered.items()}
        return Ballot(tuple(lacking), own_scores, carried, signed, decoy, self.rules.secret, no_vote)

    def _about_statistics(self, site: str) -> tuple[Flag, ...]:
        if site in self.far:
            return (FAR_STATISTICS,)
        return (HARMFUL_STATISTICS,) if site in self.strangers else ()


def told(shares: Mapping[str, float], site: str, tell_all: bool) -> dict[str, float]:
    """The contributions that a site gets to see."""
    return dict(shares) if tell_all else {site: shares[site]} if site in shares else {}
