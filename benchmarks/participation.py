"""Fifty of a thousand sites a round: is their credit what it would be if all took part in every round?

A thousand cheap sites, each with a linear model of its own kind: most want nearly the same weights, one in twenty is
rare and wants its own. The real loop, border, guard and algorithm; only the sites are cheap. The same federation runs
once with all sites in every round, and once with fifty drawn in each round, so that each site takes part ten times. The
shares of the two runs, after the same number of rounds, are compared.

    python -m benchmarks.participation [--repeats 3]
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
from benchmarks.cheap import CheapSite
from benchmarks.figures import Figure, main
from scipy.stats import pearsonr, spearmanr

from fedce.algorithms import FedCE
from fedce.core.algorithm import State
from fedce.core.draw import Draw
from fedce.core.messages import Reply, Task
from fedce.core.params import Entry, Layout, Params
from fedce.core.site import Memory
from fedce.federation.asking import Rules
from fedce.federation.loop import rounds
from fedce.guard import Guarded
from fedce.site.hospital import perform

N_SITES, N_DRAWN, N_ROUNDS = 1000, 50, 200
N_WEIGHTS = 256
RARE = 20
"""Every site whose number is a multiple of this is rare."""
LAYOUT = Layout((Entry("w", (N_WEIGHTS,), "trainable"),))


class Cheap:
    """An engine for cheap sites. Only those of the last round remember their model: FedCE asks for no other."""

    def __init__(self, algorithm: FedCE, site_of: Callable[[str], CheapSite]) -> None:
        self.algorithm, self.site_of = algorithm, site_of
        self.memories: dict[str, Memory | None] = {}

    def sites(self, known: Sequence[str]) -> tuple[str, ...]:
        return tuple(known)

    def here(self, sites: Sequence[str]) -> tuple[str, ...]:
        return tuple(sites)

    def ask(self, tasks: Sequence[Task]) -> list[Reply]:
        done = [perform(self.algorithm, self.site_of(task.site), task, self.memories.get(task.site)) for task in tasks]
        self.memories = {reply.site: memory for reply, memory in done}
        return [reply for reply, _ in done]


def thousand(seed: int) -> dict[str, CheapSite]:
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 1, N_WEIGHTS)
    found = {}
    for i in range(N_SITES):
        own = rng.normal(0, 1.0 if i % RARE == 0 else rng.uniform(0.2, 0.6), N_WEIGHTS)
        found[f"{i:04d}"] = CheapSite(f"{i:04d}", (common + own).astype(np.float32), seed)
    return found


def run(seed: int, n_rounds: int, draw: Draw | None) -> tuple[State, float, int]:
    """The last state, seconds, and how many honest sites the guard called bad at any time."""
    sites = thousand(seed)
    engine = Cheap(Guarded(FedCE()), sites.__getitem__)
    state = engine.algorithm.begin(tuple(sites), Params(LAYOUT, np.zeros(N_WEIGHTS, np.float32)))
    start, bad = perf_counter(), set[str]()
    for done in rounds(engine.algorithm, state, engine, n_rounds, Rules(draw=draw)):
        state = done.state
        bad |= {site for site, verdict in state.own.verdicts.items() if verdict.trust == 0}
    return state, perf_counter() - start, len(bad)


def measure(repeats: int) -> list[Figure]:
    found = []
    for seed in range(repeats):
        whole, seconds_of_all, bad_of_all = run(seed, N_ROUNDS, None)
        drawn, seconds, bad = run(seed, N_ROUNDS, Draw(N_DRAWN, seed))
        ours, theirs = (np.array([state.shares[site] for site in whole.sites]) for state in (drawn, whole))
        is_rare = np.arange(N_SITES) % RARE == 0
        rounds_of = [account.rounds for account in drawn.credit.values()]
        found.append(
            {
                "pearson": float(pearsonr(ours, theirs).statistic),
                "spearman": float(spearmanr(ours, theirs).statistic),
                "rare": float(ours[is_rare].sum() / theirs[is_rare].sum()),
                "paid": float(theirs[is_rare].mean() / theirs[~is_rare].mean()),
                "spread": float(max(rounds_of) - min(rounds_of)),
                "sum": float(ours.sum()),
                "seconds": seconds,
                "seconds_of_all": seconds_of_all,
                "bad": float(max(bad, bad_of_all)),
            }
        )

    def values(key: str) -> list[float]:
        return [one[key] for one in found]

    return [
        Figure("shares, 50 drawn of 1,000: correlation with those of all in every round", values("pearson")),
        Figure("the same, of ranks (Spearman)", values("spearman")),
        Figure("the rare sites' share together, drawn / all", values("rare")),
        Figure("a rare site's share / another's, all in every round", values("paid")),
        Figure("rounds in which a site was measured, most less least", values("spread"), "rounds", at_most=0),
        Figure("sum of all shares", values("sum")),
        Figure("honest sites that the guard ever called bad, of 1,000", values("bad"), "sites"),
        Figure(
            "200 rounds, all in every round / 50 drawn, seconds",
            [one["seconds_of_all"] / one["seconds"] for one in found],
        ),
        Figure("200 rounds of 50 drawn", values("seconds"), "s"),
    ]


if __name__ == "__main__":
    main(__doc__, measure, repeats=3)
