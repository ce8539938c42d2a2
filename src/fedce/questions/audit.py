"""Checks a site's reports on its own images, where they lie: the only proof against a consistent lie."""

from dataclasses import dataclass, field
from pathlib import Path

from fedce.base.errors import ConfigError, RunError, nearest
from fedce.base.files import digest_of
from fedce.core.messages import Measured
from fedce.data import load_site
from fedce.data.site import with_n_channels
from fedce.learning.metrics import Heading, Measures
from fedce.questions.loading import Which, check_names_no_code, load_model
from fedce.questions.reproduce import TOLERANCES, Reproduced, reproduced
from fedce.record.drawn import listed
from fedce.record.folder import RunFolder
from fedce.record.verify import Verdict
from fedce.site.hospital import Hospital
from fedce.site.resident import DRAWN, at_hospital

SAME_MODEL = 0.005
"""Two machines may differ by this much in the Dice, or another metric, of one model."""
SAME_PART = 0.02
"""Two machines may differ by this part of a metric's value if it has no fixed range, such as a distance."""
SAME_CASES = 1
"""Two machines may differ by this many cases without a value: one pixel decides whether a mask is empty."""
ONE_ROUND = 0.1
"""The last round's model and the final one differ by a round of training."""


def audit(run: RunFolder, site: str, data: str, *, home: Path | None = None, trust_code: bool = False) -> Verdict:
    """Let a site reproduce, from its images, what it said of the final model and in the drawn rounds.

    `home` is the site's own folder, with its key, if it is not on the coordinator's machine.
    """
    known, end = run.ledger().sites, run.ledger().end
    if end is None:
        raise RunError(f"{run.path} has not ended; there is no final model yet that {site} reported on")
    if run.ledger().format < 2:
        raise RunError(
            f"{run.ledger_file} is of an earlier version, and does not hold what {site} reported on the final model"
        )
    if site not in known:
        raise ConfigError(f"no site is called {site!r}{nearest(site, known)}; there are: {', '.join(sorted(known))}")
    if not trust_code:
        check_names_no_code(run, "data.format", "metrics")
    config = at_hospital(run.config, site, data)
    sites = load_site(config.data, site)
    if sites[0].fingerprint != known[site].fingerprint:
        return Verdict((f"the images in {data} are not those that {site} took part with",), ())
    compared = _Compared(site, [f"images and splits of {site} are those that it took part with"])
    own_model = site if run.site_model_file(site).exists() else None
    file = run.site_model_file(site) if own_model else run.model_file
    if file.exists() and digest_of(file) != end.files.get(str(file.relative_to(run.path))):
        return Verdict((f"{file.name} is not the file that the ledger ends with",), tuple(compared.facts))
    loaded = load_model(run, Which(own_model, trust_code=trust_code, device="cpu"))
    learner, classes = loaded.learner, tuple(loaded.classes)
    measures = Measures.asked_by(config)
    hospital = Hospital(with_n_channels(sites[0], loaded.shape[0]), learner, classes, config.seed, measures=measures)
    found = hospital.evaluate(learner.params, None)
    if site in end.evaluations:
        said_of_it = end.evaluations[site].evaluation
        compared.dice("Dice on its validation cases", said_of_it.validation_dice, found.validation_dice, SAME_MODEL)
        compared.dice("Dice on its test cases", said_of_it.test_dice, found.test_dice, SAME_MODEL)
        for metric in measures.metrics:
            if metric.name in said_of_it.metrics:
                compared.metric(metric.heading, said_of_it.metrics[metric.name], found.metrics[metric.name])
    spoke = [done for done in run.rounds() if site in done.sites]
    if spoke and own_model is None and spoke[-1].round_no == run.config.n_rounds - 1:
        said = spoke[-1].sites[site].score
        compared.dice("Dice on its validation cases one round before the end", said, found.validation_dice, ONE_ROUND)
    if not any(done.drawn is not None for done in spoke):
        return Verdict(tuple(compared.problems), tuple(compared.facts), (_not_drawn(run, site),))
    memories = _memories(run, site, home)
    for again in reproduced(run, config, sites[0], loaded, memories):
        compared.round(again, memories)
    return Verdict(tuple(compared.problems), tuple(compared.facts))


def _memories(run: RunFolder, site: str, home: Path | None) -> Path:
    """Where the site keeps the memories that it had before drawn rounds."""
    name = run.ledger().begun.run
    if name is None:
        return run.drawn_memory_folder / site
    own = (home or Path.home() / ".fedce" / "sites" / site).expanduser()
    if not own.is_dir():
        raise ConfigError(f"{own} is not a folder; give the folder of {site}, with its key, as --home DIR")
    return own / name / DRAWN


def _not_drawn(run: RunFolder, site: str) -> str:
    drawn = [done.round_no for done in run.rounds() if done.drawn is not None]
    why = f"{site} took part in none of them ({listed(drawn)})" if drawn else "none was drawn in this run"
    return f"what {site} said in drawn rounds: {why}"


@dataclass
class _Compared:
    """The site's reported and measured values, line by line."""

    site: str
    facts: list[str]
    problems: list[str] = field(default_factory=list)

    def dice(self, what: str, said: float | None, measured: float, tolerance: float) -> None:
        if said is None:
            return
        text = f"{what}: {self.site} said {said:.4f}, and its images give {measured:.4f}"
        (self.facts if abs(said - measured) <= tolerance else self.problems).append(text)

    def round(self, again: Reproduced, memories: Path) -> None:
        """Compare what the site said in a drawn round with what it gives when it does the round again."""
        where = f"round {again.round_no + 1}, drawn for the audit"
        self.problems += [f"{where}: {problem}" for problem in again.problems]
        for name in again.wrong:
            self.problems.append(f"{where}: {name}: {_difference(again, name, self.site)}")
        if again.wrong and again.round_no > 0 and not again.has_memory:
            self.problems.append(f"{where}: {self.site} has kept no memory of it in {memories}")
        if not again.problems and not again.wrong:
            told = ", ".join(f"{name} {distance:.2g}" for name, distance in again.away.items())
            self.facts.append(f"{where}: done again, {self.site} answers as it did; differences: {told}")

    def metric(self, heading: Heading, said: Measured, found: Measured) -> None:
        """Compare class by class, so that no mean hides a lie."""
        wrong = [name for name in found.by_class if not _agree(name, said, found)]
        for name in wrong or found.by_class:
            what = f"{heading.line([found.unit])} of {name} on its test cases"
            texts = [_told(heading, name, one) for one in (said, found)]
            text = f"{what}: {self.site} said {texts[0]}, and its images give {texts[1]}"
            (self.problems if wrong else self.facts).append(text)


def _difference(again: Reproduced, name: str, site: str) -> str:
    allowed = f"({TOLERANCES[name]:g} is allowed between machines)"
    if name in again.said:
        said, found = (f"{value:.4f}" if value is not None else "nothing" for value in again.values(name))
        return f"{site} said {said}, and its images give {found} {allowed}"
    return f"what {site} sent is {again.away[name]:.2g} away from what its images give {allowed}"


def _agree(name: str, said: Measured, found: Measured) -> bool:
    if said.unit != found.unit or abs(said.undefined.get(name, 0) - found.undefined[name]) > SAME_CASES:
        return False
    one, other = said.by_class.get(name), found.by_class[name]
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(SAME_MODEL, SAME_PART * abs(other))


def _told(heading: Heading, name: str, measured: Measured) -> str:
    n = measured.undefined.get(name, 0)
    value = measured.by_class.get(name)
    told = "nothing" if value is None else f"{value:.{heading.digits + 1}f}{measured.unit and ' '}{measured.unit}"
    return f"{told} (undefined in {n})" if n else told
