"""The paper's two theorems against measurements: do their assumptions hold here, and what do their bounds say?

Distribution shift: when a site leaves, no share changes by more than 2 N B W1. B is the smallest constant that the
leave-one-out trainings allow: a training without j and one without k differ in that j and k are exchanged. B is fitted
on the same trainings that the bound is compared with, so a bound that holds is a weak test.

Convergence: L, beta and delta are measured where they are defined, on the gradients of all training images along one
round's local steps, at four rounds of a training. The theorem writes rho for the weight of a site; in its proof rho is
a ratio of norms, |gamma|_1 / (|gamma|_2 sqrt(kappa)), of the parts that a site's steps have in its update. It is 1
where all steps count alike, and has nothing to do with the weights. Tables take the weight; findings say both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from fedce.base.config import Config
from fedce.core.algorithm import State
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, Vector
from fedce.data.inspection import N_GREYS, distance, grey_values
from fedce.engines.local import LocalEngine
from fedce.federation.asking import Engine
from fedce.federation.checkpoint import load_state
from fedce.federation.plan import Participants, resolve
from fedce.record.folder import RunFolder
from fedce.site.hospital import Hospital
from fedce.studies.base import Cell, Context, Outcome, Picture, Study, Table
from fedce.studies.shift import renormalised

TITLE = "Theory: both theorems against measurements"
PROBED = (0.25, 0.5, 1.0)
"""One more round is measured step by step after these parts of the rounds; the first round is measured too."""
RHO_OF_EQUAL_STEPS = 1.0
"""rho as the appendix defines it: by Cauchy and Schwarz at most 1, which it is for gamma = (c, c, ..., c)."""
Distances = Mapping[tuple[str, str], float]


def trainings(context: Context) -> list[Config]:
    return [*context.leave_one_out(), *_beginnings(context).values()]


def _beginnings(context: Context) -> dict[int, Config]:
    """The training, ended after some of its rounds: number of rounds to its configuration."""
    after = sorted({max(1, round(part * context.config.n_rounds)) for part in PROBED})
    return {n: context.training("fedce", context.seeds[0], rounds=n) for n in after}


def evaluate(context: Context) -> Outcome:
    shift, shift_findings = _shift(context)
    convergence, pictures, convergence_findings = _convergence(context)
    return Outcome("theory", TITLE, [*shift_findings, *convergence_findings], [shift, *convergence], pictures)


# Distribution shift (the paper's first theorem)


def _shift(context: Context) -> tuple[Table, list[str]]:
    grey = {site.name: grey_values(site.images) for site in context.sites}
    distances = {(a, b): distance(grey[a], grey[b]) / (N_GREYS - 1) for a, b in permutations(context.names, 2)}
    shares = [_shares(context, seed) for seed in context.seeds]
    stability = max(stability_of(by_left, distances) for by_left in shares)
    rows: list[list[Cell]] = []
    for left in context.names:
        change = max(largest_change(by_left, left) for by_left in shares)
        moved = moved_by_leaving(left, context.names, distances)
        bound = 2 * len(context.names) * stability * moved
        rows.append([left, change, moved, bound, change / bound if bound else None, "yes" if change <= bound else "no"])
    table = Table(
        "distribution-shift",
        "The largest change of another site's share when a site leaves, over all seeds, against the bound 2 N B W1. "
        f"Distances are between grey values from 0 to 1; B = {stability:.2f} is the smallest that the trainings allow.",
        ["without", "largest change", "W1", "bound", "change / bound", "holds"],
        rows,
        digits=3,
    )
    n_held = sum(row[-1] == "yes" for row in rows)
    tightest = max(float(row[4]) for row in rows if isinstance(row[4], float))
    findings = [
        f"Distribution shift: the bound holds for {n_held} of {len(rows)} sites; the largest change is "
        f"{100 * tightest:.0f} % of its bound. B is not known beforehand: it is the smallest value that fits the "
        "theorem's assumption to these trainings, so a bound that holds is a weak test."
    ]
    if stability > 1:
        findings.append(
            f"The theorem assumes a stability B of at most 1. The measured B is {stability:.2f}, with distances "
            "between grey values from 0 to 1: some sites look alike but have different shares, so another distance is "
            "needed."
        )
    return table, findings


def _shares(context: Context, seed: int) -> dict[str, dict[str, float]]:
    """Shares by the site that was left out; the training with all sites is ''."""
    lefts = ("", *context.names)
    configs = {left: context.training("fedce", seed, leave_out=(left,) if left else ()) for left in lefts}
    return {left: context.result(config).contributions for left, config in configs.items()}


def stability_of(shares: Mapping[str, Mapping[str, float]], distances: Distances) -> float:
    """The smallest B with |Gamma(S, {j}) - Gamma(S, {k})| <= B d(j, k) for all pairs; S are all other sites."""
    ratios = [
        abs(shares[k][j] - shares[j][k]) / d if d else inf
        for (j, k), d in distances.items()
        if shares[k][j] != shares[j][k]
    ]
    return max(ratios, default=0.0)


def largest_change(shares: Mapping[str, Mapping[str, float]], left: str) -> float:
    before = renormalised(dict(shares[""]), left)
    return max(abs(shares[left][site] - share) for site, share in before.items())


def moved_by_leaving(left: str, sites: Sequence[str], distances: Distances) -> float:
    """W1 between the even mix of all sites and the even mix of all but one, whose part goes to the others evenly."""
    others = [site for site in sites if site != left]
    return fmean(distances[left, site] for site in others) / len(sites)


# Convergence (the second theorem and its corollary)


@dataclass(frozen=True)
class SiteMeasures:
    """Measurements of one site in one round."""

    weight: float
    """p: the site's share of the training images."""
    rho: float
    steps: int
    beta: float
    delta: float
    rate: float
    """The step length: the site's path divided by the sum of its gradients. With SGD it is the learning rate."""

    def a(self, rate: float) -> float:
        return rate * sqrt(self.steps) * (self.steps - 1) * self.beta**2 * self.delta


@dataclass(frozen=True)
class Measures:
    """Measurements of one round."""

    round_no: int
    sites: Mapping[str, SiteMeasures]
    smoothness: float
    """L: the smoothness constant."""
    gradient: float
    """Norm of the common gradient before the round."""
    moved: float
    """How far the round moved the common model."""
    change: float
    """Change of the common loss by the round."""

    @property
    def rate(self) -> float:
        return sum(site.weight * site.rate for site in self.sites.values())

    @property
    def step(self) -> float:
        """Norm of d: the common model's move, divided by the step length."""
        return self.moved / self.rate

    @property
    def promised(self) -> float:
        """The theorem's bound on the change of the loss."""
        drift = sum(site.weight * site.rho * self.rate * site.a(self.rate) for site in self.sites.values())
        factor = self.rate / 4 * (2 * self.rate * self.smoothness + drift) - self.rate
        return factor * self.gradient**2

    def rho_limit(self, site: str) -> float | None:
        """The corollary's bound on a site's weight; None if A does not dominate: then there is no bound."""
        a = self.sites[site].a(self.rate)
        return 4 * sqrt(a) / (a - 2 * self.smoothness) if a > 2 * self.smoothness else None


def _convergence(context: Context) -> tuple[list[Table], list[Picture], list[str]]:
    measured = [_measure(context, n) for n in (0, *_beginnings(context))]
    rounds = Table(
        "convergence",
        "The convergence theorem at single rounds. Its premises are eta L >= 1, and a common step |d| no longer than "
        "the common gradient |grad F|. The theorem promises that the loss changes by at most the bound.",
        [
            *("round", "eta", "L", "eta L", "|d|", "|grad F|", "bound", "change of the loss"),
            *("eta L >= 1", "|d| <= |grad F|", "bound < 0", "change <= bound"),
        ],
        [
            [
                *(str(m.round_no + 1), m.rate, m.smoothness, m.rate * m.smoothness, m.step, m.gradient, m.promised),
                m.change,
                *_yes(m.rate * m.smoothness >= 1, m.step <= m.gradient, m.promised < 0, m.change <= m.promised),
            ]
            for m in measured
        ],
        digits=4,
    )
    sites = Table(
        "convergence-sites",
        "The theorem's constants by site, and the corollary's limit on rho, read as a site's weight (for A above 2 L).",
        ["round", "site", "steps", "beta", "delta", "A", "rho", "limit", "rho below it"],
        [_site_row(m, name) for m in measured for name in m.sites],
        digits=4,
        n_keys=2,
    )
    limits = [(m.sites[name].rho, limit) for m in measured for name in m.sites if (limit := m.rho_limit(name))]
    falls = sum(m.change < 0 for m in measured)
    both = sum(m.rate * m.smoothness >= 1 and m.step <= m.gradient for m in measured)
    findings = [
        f"Convergence: the loss falls in {falls} of the {len(measured)} rounds that were measured. Both premises of "
        f"the theorem hold in {both} of them, its bound promises a fall in {sum(m.promised < 0 for m in measured)}, "
        f"and the measured change stays within the bound in {sum(m.change <= m.promised for m in measured)}.",
        f"The corollary limits rho (A above 2 L) in {len(limits)} of {sum(len(m.sites) for m in measured)} pairs of a "
        f"site and a round; read as a weight, rho is below its limit in {sum(rho <= limit for rho, limit in limits)} "
        "of them. In the appendix, rho is not a weight but a ratio of norms, |gamma|_1 / (|gamma|_2 sqrt(kappa)), "
        f"which is {RHO_OF_EQUAL_STEPS:g} if all steps of a site count alike; this ratio is below the limit in "
        f"{sum(limit >= RHO_OF_EQUAL_STEPS for _, limit in limits)} of them.",
    ]
    if context.config.train.optimizer != "sgd":
        findings.append(
            f"The theorem is about plain gradient steps, but the training uses {context.config.train.optimizer}. So "
            "eta is measured: the sites' path divided by the sum of their gradients."
        )
    return [rounds, sites], [_picture(measured)], findings


def _site_row(m: Measures, name: str) -> list[Cell]:
    site, limit = m.sites[name], m.rho_limit(name)
    holds = "-" if limit is None else _yes(site.rho <= limit)[0]
    return [
        *(str(m.round_no + 1), name, str(site.steps), site.beta, site.delta, site.a(m.rate), site.rho),
        *(limit, holds),
    ]


def _yes(*facts: bool) -> list[str]:
    return ["yes" if fact else "no" for fact in facts]


def _picture(measured: Sequence[Measures]) -> Picture:
    from fedce.pictures import study_plots

    names = list(measured[0].sites)
    lines = {name: [m.sites[name].a(m.rate) for m in measured] for name in names}
    return Picture(
        "drift",
        "A, the theorem's measure of how far local training leads away, by site. The paper argues that sites with a "
        "large A are under-represented and should have more weight.",
        study_plots.points([m.round_no + 1 for m in measured], lines, "A").encode(),
        data=Table(
            "drift",
            "A by round and site.",
            ["round", *names],
            [[str(m.round_no + 1), *(lines[name][i] for name in names)] for i, m in enumerate(measured)],
            digits=6,
        ),
    )


def _measure(context: Context, n_rounds: int) -> Measures:
    """Continue a training of `n_rounds` rounds for one more round, and measure its gradients."""
    config = resolve(context.training("fedce", context.seeds[0], rounds=max(1, n_rounds)))
    participants = Participants(config, context.sites)
    with TemporaryDirectory() as empty:
        state, memories = participants.initial_state(), Path(empty)
        if n_rounds:
            run = RunFolder(context.store.path(config))
            state, memories = load_state(run.state_file, participants.initial_state()), run.memory_folder
        with LocalEngine(participants, memories, workers=1) as engine:
            return measure_round(participants, state, engine)


def measure_round(participants: Participants, state: State, engine: Engine) -> Measures:
    """One round of FedCE, and the gradients along it."""
    ways: dict[str, list[Params]] = {}

    def ask(tasks: Sequence[Task]) -> list[Reply]:
        replies = []
        for task in sorted(tasks, key=lambda task: task.site):
            ways[task.site] = [task.params]
            participants.learner.after_step = ways[task.site].append
            replies += engine.ask([task])
        participants.learner.after_step = None
        return replies

    after = participants.algorithm.round(state, ask)
    hospitals = {site: _hospital(participants, site) for site in ways}
    n_images = sum(hospital.n_train for hospital in hospitals.values())
    weights = {site: hospital.n_train / n_images for site, hospital in hospitals.items()}

    def common(params: Params) -> tuple[float, Vector]:
        found = {site: hospital.gradient(params) for site, hospital in hospitals.items()}
        loss = sum(weights[site] * loss for site, (loss, _) in found.items())
        return loss, np.sum([np.float32(weights[site]) * gradient for site, (_, gradient) in found.items()], axis=0)

    loss_before, before = common(state.params)
    loss_after, behind = common(after.params)
    moved = _norm(after.params.trainable - state.params.trainable)
    return Measures(
        round_no=state.round_no,
        sites={
            site: _site_measures(hospital, ways[site], _norm(before), weights[site], after.rho[site])
            for site, hospital in hospitals.items()
        },
        smoothness=_norm(behind - before) / moved if moved else 0.0,
        gradient=_norm(before),
        moved=moved,
        change=loss_after - loss_before,
    )


def _site_measures(hospital: Hospital, way: Sequence[Params], common: float, weight: float, rho: float) -> SiteMeasures:
    """Assumptions 2 and 3 along one site's steps; `common` is the norm of the common gradient."""
    start, *_, end = way
    first = total = hospital.gradient(start)[1]
    beta = delta = 0.0
    for n_steps, params in enumerate(way[1:-1], 1):
        delta = max(delta, _norm(total) ** 2 / (n_steps * common**2))
        here = hospital.gradient(params)[1]
        beta = max(beta, _norm(here - first) / _norm(params.trainable - start.trainable))
        total = total + here
    rate = _norm(end.trainable - start.trainable) / _norm(total)
    return SiteMeasures(weight, rho, len(way) - 1, beta, delta, rate)


def _hospital(participants: Participants, site: str) -> Hospital:
    hospital = participants.hospital(site)
    assert isinstance(hospital, Hospital)
    return hospital


def _norm(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


STUDY = Study(TITLE, trainings, evaluate, order=11)
