"""What is said of a run, or of many trainings, while they go on; terminal and notebook show the same words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from fedce.base.words import duration

if TYPE_CHECKING:
    from fedce.base.config import Config
    from fedce.core.messages import Member
    from fedce.federation.session import RoundSeen
    from fedce.questions.jobs import Progress, Store


class Step(NamedTuple):
    """How far something is, and a line about it."""

    n_done: int
    n_all: int
    line: str


@dataclass
class RunWords:
    """The words about one run."""

    sites: tuple[str, ...] = ()
    n_rounds: int = 0
    first_round: int = 0
    began: float = field(default_factory=monotonic)

    def start(self, config: "Config", members: "Mapping[str, Member]", first_round: int) -> str:
        """What is trained on which sites."""
        # Not at the top: it imports numpy, and the first notice must not wait for that.
        from fedce.algorithms.titles import printed_name
        from fedce.data.shape import counted_as

        self.sites, self.n_rounds, self.first_round = tuple(members), config.n_rounds, first_round
        self.began = monotonic()
        counts = ", ".join(f"{name} {member.n_images}" for name, member in members.items())
        return (
            f"{printed_name(config.algorithm)} on {config.data.source}: {len(members)} sites "
            f"({counts} {counted_as(config.data)}), {config.n_rounds} rounds, seed {config.seed}"
        )

    def round(self, done: "RoundSeen") -> Step:
        n_done = done.round_no + 1
        rate = (monotonic() - self.began) / (n_done - self.first_round)
        left = rate * (self.n_rounds - n_done)
        # In the order of the first line: if sites are drawn, shares come in the order of the draws.
        sites = (*self.sites, *sorted(done.shares.keys() - set(self.sites)))  # Sites that joined late come last.
        shares = " ".join(f"{100 * done.shares[site]:.0f}" if site in done.shares else "-" for site in sites)
        line = f"Dice {done.mean_score:.3f}  shares % {shares}  {duration(left)} left"
        return Step(n_done, self.n_rounds, line)


@dataclass
class JobsWords:
    """The words about many trainings."""

    began: float = field(default_factory=monotonic)
    first: int | None = None
    last: int = 0

    def is_anew(self, now: "Progress") -> bool:
        """Whether another set of trainings begins."""
        if self.first is not None and now.rounds_done >= self.last:
            return False
        self.first, self.began = now.rounds_done, monotonic()
        return True

    def progress(self, now: "Progress") -> Step:
        self.last = now.rounds_done
        new = now.rounds_done - (self.first or 0)
        left = (monotonic() - self.began) / new * (now.n_rounds - now.rounds_done) if new else None
        line = f"trainings {now.n_done}/{now.n_jobs}, rounds {now.rounds_done}/{now.n_rounds}"
        line += f", {duration(left)} left" if left is not None else ""
        return Step(now.rounds_done, now.n_rounds, line)


def estimate(store: "Store", configs: "Sequence[Config]", workers: int) -> tuple[int, str]:
    """The rounds that are left to do of these trainings, and a line that says so."""
    from fedce.engines.local import default_workers

    missing = store.missing(configs)
    n_rounds = sum(config.n_rounds for config in missing)
    kept = len(configs) - len(missing)
    per_round = store.seconds_a_round(configs)
    parallel = workers or default_workers(len(missing) or 1)
    time = f", about {duration(n_rounds * per_round / parallel)}" if per_round else ""
    return n_rounds, f"{len(configs)} trainings, {kept} of them already done; {n_rounds} rounds to do{time}"
