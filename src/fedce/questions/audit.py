"""What a site said of its images, checked by somebody who may look at them: the only proof against a consistent lie."""

from fedce.base.errors import ConfigError, RunError, nearest
from fedce.base.files import digest_of
from fedce.data import load_site
from fedce.data.sites import with_n_channels
from fedce.questions.predict import load_learner
from fedce.record.folder import RunFolder
from fedce.record.verify import Verdict
from fedce.site.hospital import Hospital
from fedce.site.resident import at_hospital

SAME_MODEL = 0.005
"""Two machines may differ by so much in the Dice of one model."""
ONE_ROUND = 0.1
"""The last round's model and the final one differ by a round of training."""


def audit(run: RunFolder, site: str, data: str, *, trust_code: bool = False) -> Verdict:
    """Score the run's model on the site's images, and set it beside what the site said."""
    known, end = run.ledger().sites, run.ledger().end
    if end is None:
        raise RunError(f"{run.path} has not ended; there is no final model yet that {site} said anything of")
    if run.ledger().format < 2:
        raise RunError(
            f"{run.ledger_file} is of an earlier version, and does not hold what {site} said of the final model"
        )
    if site not in known:
        raise ConfigError(f"no site is called {site!r}{nearest(site, known)}; there are: {', '.join(sorted(known))}")
    config = at_hospital(run.config, site, data)
    sites = load_site(config.data, site)
    if sites[0].fingerprint != known[site].fingerprint:
        return Verdict((f"the images in {data} are not those that {site} took part with",), ())
    facts = [f"images and splits of {site} are those that it took part with"]
    own_model = site if run.site_model_file(site).exists() else None
    file = run.site_model_file(site) if own_model else run.model_file
    if file.exists() and digest_of(file) != end.files.get(str(file.relative_to(run.path))):
        return Verdict((f"{file.name} is not the file that the ledger ends with",), tuple(facts))
    learner, classes, shape = load_learner(run, own_model, trust_code=trust_code)
    hospital = Hospital(with_n_channels(sites[0], shape[0]), learner, tuple(classes), config.seed)
    found = hospital.evaluate(learner.params, None)
    problems: list[str] = []

    def compare(what: str, said: float | None, measured: float, tolerance: float) -> None:
        if said is None:
            return
        text = f"{what}: {site} said {said:.4f}, and its images give {measured:.4f}"
        (facts if abs(said - measured) <= tolerance else problems).append(text)

    if site in end.evaluations:
        said_of_it = end.evaluations[site].evaluation
        compare("Dice on its validation images", said_of_it.validation_dice, found.validation_dice, SAME_MODEL)
        compare("Dice on its test images", said_of_it.test_dice, found.test_dice, SAME_MODEL)
    spoke = [done for done in run.rounds() if site in done.sites]
    if spoke and own_model is None and spoke[-1].round_no == run.config.n_rounds - 1:
        said = spoke[-1].sites[site].score
        compare("Dice on its validation images one round before the end", said, found.validation_dice, ONE_ROUND)
    return Verdict(tuple(problems), tuple(facts))
