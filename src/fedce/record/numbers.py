"""Whether the numbers of a run follow from what its ledger holds."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fedce import algorithms
from fedce.base.files import digest_of
from fedce.base.ranges import NOVELTY, SCORE
from fedce.core.algorithm import Algorithm
from fedce.guard.border import FAR_STATISTICS, HARMFUL_STATISTICS, SEEN_AT_THE_BORDER
from fedce.guard.statistics import FAR, is_harmful
from fedce.guard.verdicts import flags_by_guard
from fedce.record.checks import Part
from fedce.record.entries import Continued, End, Round
from fedce.record.folder import RunFolder
from fedce.record.ledger import Ledger
from fedce.record.results import results_of

SAME_SHARE = 1e-12
SAME_RESULT = 1e-9
"""Tolerance, relative above 1: two machines may differ by this much in a recomputed result."""
STEADY = {
    *("algorithm", "data", "rounds", "seed", "contributions", "dice", "dice_by_class", "dice_without"),
    *("validation_dice", "fairness", "images", "train_images", "seconds", "model_sha256"),
}
"""Results that all versions work out in the same way; other results of an earlier format can't be compared."""
COVERED = {"config.toml", "ledger.jsonl", "results.json", "models", ".lock"}
"""Files of a run folder that are checked, beside those that the ledger's end names."""


NumberedRounds = Sequence[tuple[int, Round]]


def numbered_rounds(ledger: Ledger) -> NumberedRounds:
    """Rounds with the numbers of their lines."""
    return [(number, line) for number, line in enumerate(ledger, 1) if isinstance(line, Round)]


class Statistics(Part):
    """The choice of running statistics that were not used follows from what the other sites' scores lost by them."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        is_off = run.config.guard == "off"
        before: set[str] = set()
        left_out = {HARMFUL_STATISTICS, FAR_STATISTICS}
        for number, done in numbered_rounds(ledger):
            now = {site for site, facts in done.sites.items() if left_out & set(facts.flags)}
            for site, facts in done.sites.items():
                harm, distance = facts.statistics_harm, facts.statistics_distance
                follows = {HARMFUL_STATISTICS} if harm is not None and is_harmful(harm, site in before) else set()
                follows |= {FAR_STATISTICS} if distance is not None and distance > FAR else set()
                if left_out & set(facts.flags) != follows or (is_off and (harm, distance) != (None, None)):
                    self.problems.append(
                        f"line {number}, {site}: what is said of its running statistics does not follow from their harm"
                    )
            before = now


class Replayed(Part):
    """Works out all weights and shares again, from what was recorded of each round."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        rounds, name = numbered_rounds(ledger), run.config.algorithm.name
        self.algorithm = algorithms.built_in(run.config, ledger.format)
        if self.algorithm is None or not self._is_recorded(self.algorithm, rounds):
            last: Mapping[str, float] = {}
            for line in ledger:
                if isinstance(line, Round):
                    last = line.shares
                elif isinstance(line, End) and last:
                    self._ended({site: share for site, share in line.shares.items() if site in last}, last)
            self.unchecked.append(f"the shares of {name}: they don't follow from the ledger alone")
            return
        if ledger.format >= 3:
            self._ranges(rounds)
        replayer = self.algorithm.replay()
        shares: Mapping[str, float] = {}
        for number, done in enumerate(ledger, 1):
            if isinstance(done, End):
                self._ended(done.shares, shares)
            if not isinstance(done, Round):
                continue
            rho, shares, problems = replayer.round(done.facts)
            self.problems += [f"line {number}, {site}: {what}" for site, what in problems]
            self._flags(number, done)
            self._compare(number, "weight", {site: facts.weight for site, facts in done.sites.items()}, rho)
            self._compare(number, "share", done.shares, shares)
        what = "weights and shares"
        if self.algorithm.traits.weights_are_measured:
            what = "shares"
            self.unchecked.append(f"the weights of {name}: they follow from the models, which the ledger does not hold")
        if replayer.is_of_earlier_rules:
            self.unchecked.append(
                "what the guard concluded from its signs: the guard of an earlier version had other rules"
            )
        self.facts.append(f"{what} of {len(rounds)} rounds worked out again")

    def _is_recorded(self, algorithm: Algorithm, rounds: NumberedRounds) -> bool:
        """Whether the ledger holds what shares follow from; if only a later line lacks it, the line was changed."""
        try:
            return not rounds or bool(algorithm.read(rounds[0][1].facts))
        except LookupError:
            return False

    def _ended(self, ended: Mapping[str, float], shares: Mapping[str, float]) -> None:
        """The shares in an end's line are those of the last round before it."""
        for site in sorted({*shares, *ended}):
            if not abs(ended.get(site, 0.0) - shares.get(site, 0.0)) <= SAME_SHARE:
                self.problems.append(f"the end gives {site} {ended.get(site)}, but the rounds {shares.get(site)}")

    def _ranges(self, rounds: NumberedRounds) -> None:
        for number, done in rounds:
            for site, facts in done.facts.items():
                for name, allowed in (("cos", NOVELTY), ("err", SCORE)):
                    if (value := facts.get(name)) is not None and value not in allowed:
                        self.problems.append(f"line {number}, {site}: {name} is {value}, which is not in {allowed}")

    def _flags(self, number: int, done: Round) -> None:
        """The flags of a site follow from what was seen of it."""
        for site, facts in done.facts.items():
            by_guard = flags_by_guard(facts)
            if not set(by_guard) <= set(done.sites[site].flags) <= {*by_guard, *SEEN_AT_THE_BORDER}:
                self.problems.append(f"line {number}, {site}: its flags do not follow from what the guard saw")

    def _compare(self, number: int, name: str, recorded: Mapping[str, float], found: Mapping[str, float]) -> None:
        for site, value in recorded.items():
            if site in found and not abs(value - found[site]) <= SAME_SHARE:
                self.problems.append(
                    f"line {number}, {site}: its {name} is {value:.6f}, but {found[site]:.6f} follows from the terms"
                )


class ResultsAgain(Part):
    """The published results follow from the ledger."""

    def __init__(self, run: RunFolder, ledger: Ledger) -> None:
        super().__init__()
        files = ledger.end.files if ledger.end else {}
        self._files(run, files, "the ledger ends with")
        if digest := (ledger.part or ledger.begun).splits:
            self._files(run, {run.splits_file.name: digest}, "the run was started with")
        self._uncovered(run, ledger, {*files, *((run.splits_file.name,) if digest else ())})
        if ledger.end is None:
            if run.results_file.exists():
                self.problems.append("the run has results, but the ledger has no end: its last lines are gone")
            return
        if not run.results_file.exists():
            return
        stored = run.results
        self.results = results_of(run.config, ledger, over_rounds="intervals_over_rounds" in stored)
        self._compare(stored, ledger.format)

    def _compare(self, stored: Mapping[str, Any], stated: int) -> None:
        assert self.results is not None
        compared = self.results if stated >= 3 else {key: self.results[key] for key in STEADY & self.results.keys()}
        for key in sorted(compared):
            self.problems += _differences(key, stored.get(key), compared[key])
        if rest := sorted(stored.keys() - compared.keys()):
            self.unchecked.append(f"{', '.join(rest)} in results.json: they don't follow from the ledger")
        self.facts.append(f"{len(compared)} entries of results.json, contributions among them, follow from the ledger")

    def _files(self, run: RunFolder, files: Mapping[str, str], which: str) -> None:
        for name, digest in files.items():
            file = run.path / name
            if not file.resolve().is_relative_to(run.path.resolve()):
                self.problems.append(f"the end names a file outside of the run folder, {name}")
            elif not file.exists():
                self.unchecked.append(f"{name}: the file is not here")
            elif digest_of(file) != digest:
                self.problems.append(f"{name} is not the file that {which}")
            else:
                self.facts.append(f"{name} is the file that {which}")

    def _uncovered(self, run: RunFolder, ledger: Ledger, covered: Collection[str]) -> None:
        """Files that the ledger does not cover: anybody may have changed them."""
        earlier = [run.config_until(line.round_no).name for line in ledger.of(Continued)]
        attested = [file.with_suffix(end).name for file in run.attestation_files for end in (".json", ".tsr")]
        known = {*COVERED, *covered, *earlier, *attested, run.audit_folder.name, run.fingerprints_file.name}
        beside = [file for file in sorted(run.path.iterdir()) if file.name not in known]
        models = [file for file in sorted((run.path / "models").glob("*")) if f"models/{file.name}" not in covered]
        names = [str(file.relative_to(run.path)) for file in (*beside, *models)]
        if names:
            self.unchecked.append(f"{', '.join(names)}: not covered by the ledger")


def _differences(where: str, stored: Any, followed: Any) -> Iterator[str]:
    """Places where results.json differs from what follows from the ledger."""
    if isinstance(stored, Mapping) and isinstance(followed, Mapping):
        for key in sorted({*stored, *followed}, key=str):
            yield from _differences(f"{where}.{key}", stored.get(key), followed.get(key))
    elif isinstance(stored, list) and isinstance(followed, list | tuple) and len(stored) == len(followed):
        for i, (one, other) in enumerate(zip(stored, followed, strict=True)):
            yield from _differences(f"{where}.{i}", one, other)
    elif not _is_same(stored, followed):
        yield f"results.json gives {where} as {_short(stored)}, but by the ledger it is {_short(followed)}"


def _is_same(stored: Any, followed: Any) -> bool:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in (stored, followed)):
        return type(stored) is type(followed) and bool(stored == followed)
    return bool(abs(stored - followed) <= SAME_RESULT * max(1.0, abs(followed)))


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
