"""Whether the rounds that were drawn for an audit are those of the seed that the coordinator hid in the first line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedce.base.files import digest_of
from fedce.core.challenge import drawn_by, hash_of
from fedce.record.checks import Part
from fedce.record.entries import Continued, End, Round, Start
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger


@dataclass(frozen=True)
class Stretch:
    """The rounds from a start, or a continuation, to the next end; each stretch has a seed of its own."""

    began: Start | Continued
    rounds: Sequence[Round]
    end: End | None
    n_rounds: int
    """The rounds of the experiment: the stretch was to last until there."""


def stretches(run: RunFolder, ledger: Ledger) -> Iterator[Stretch]:
    starts = [number for number, line in enumerate(ledger) if isinstance(line, Start | Continued)]
    for number, until in zip(starts, [*starts[1:], len(ledger)], strict=True):
        lines, following = ledger.lines[number:until], ledger.lines[until] if until < len(ledger) else None
        began = lines[0]
        assert isinstance(began, Start | Continued)
        n_rounds = following.changed.rounds[0] if isinstance(following, Continued) else run.config.n_rounds
        rounds = [line for line in lines if isinstance(line, Round)]
        yield Stretch(began, rounds, next((line for line in lines if isinstance(line, End)), None), n_rounds)


class Drawn(Part):
    """The drawn rounds follow from the seed, and what was kept of them is what the ledger says."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        for stretch in stretches(run, ledger):
            self._stretch(run, stretch)

    def _stretch(self, run: RunFolder, stretch: Stretch) -> None:
        said = [done.round_no for done in stretch.rounds if done.drawn is not None]
        if stretch.began.challenge is None:
            if said:
                self.problems.append(f"round {said[0] + 1} was drawn for an audit, and the ledger began without a seed")
            return
        self._kept(run, stretch.rounds)
        if stretch.end is None:
            self.unchecked.append("whether the rounds drawn for an audit follow from the hidden seed: no end yet")
            return
        try:
            is_the_seed = hash_of(stretch.end.seed or "") == stretch.began.challenge
        except ValueError:
            is_the_seed = False
        if not stretch.end.seed or not is_the_seed:
            self.problems.append("the end does not hold the seed whose hash the ledger began with: it draws no rounds")
            return
        drawn = drawn_by(stretch.end.seed, run.config.audit, stretch.began.round_no, stretch.n_rounds)
        expected = [done.round_no for done in stretch.rounds if done.round_no in drawn]
        for round_no in sorted({*said} ^ {*expected}):
            told, truth = ("was", "is not") if round_no in said else ("was not", "is")
            self.problems.append(f"round {round_no + 1} {told} drawn for an audit, and {truth} by the seed")
        self.facts.append(f"the rounds drawn for an audit follow from the hidden seed: {listed(said)}")

    def _kept(self, run: RunFolder, rounds: Sequence[Round]) -> None:
        gone = []
        for done in rounds:
            files = {run.path / name: digest for name, digest in (done.drawn or {}).items()}
            if not all(file.exists() for file in files):
                gone.append(done.round_no)
            for file, digest in files.items():
                if file.exists() and digest_of(file) != digest:
                    self.problems.append(
                        f"{file.relative_to(run.path)} is not what was kept of round {done.round_no + 1}"
                    )
        if run.drawn_memory_folder.exists():
            self.unchecked.append(
                "the sites' memories from before drawn rounds: the ledger does not hold their digests"
            )
        if gone:
            self.unchecked.append(f"the models of drawn rounds that are not here, and can't be audited: {listed(gone)}")


def listed(rounds: Sequence[int]) -> str:
    """Round numbers as people count."""
    return ", ".join(str(round_no + 1) for round_no in rounds) or "none"
