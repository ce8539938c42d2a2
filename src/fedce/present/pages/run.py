"""A run as one self-contained HTML page: no network, opens from disk, light and dark, prints well."""

from pathlib import Path

from fedce.algorithms.titles import printed_name
from fedce.base.errors import RunError
from fedce.base.files import write_bytes
from fedce.data.shape import counted_as
from fedce.present.columns import COUNTED, sites_table
from fedce.present.glance import glance
from fedce.present.meanings import meanings
from fedce.present.pages import page
from fedce.present.pages.card import model_card
from fedce.present.pages.truth import truths
from fedce.present.terms import terms_in_words
from fedce.present.worth import shares_given
from fedce.record.folder import RunFolder
from fedce.record.results import MOST_BANDS
from fedce.record.standing import change_sentences
from fedce.record.verify import checked

MOST_PAIRS = 30
FAIRNESS_ROWS = (
    ("mean", "Mean Dice", "average over the sites of the Dice on their test cases"),
    ("std", "Standard deviation", "of the sites' Dice (n - 1); lower is fairer"),
    ("worst", "Worst site", "the site that the model serves worst"),
    ("best", "Best site", "the site that the model serves best"),
    ("jain", "Jain's index", "1 if all sites are served alike"),
    ("gini", "Gini coefficient", "0 if all sites are served alike"),
)


def write_report(run: RunFolder, *, examples: bool = True) -> Path:
    """Write report.html from the run's record alone. Without `examples` the page holds no image of a patient."""
    write_bytes(run.report_file, report_page(run, examples=examples))
    return run.report_file


def report_page(run: RunFolder, *, examples: bool = True) -> bytes:
    from fedce.present import figures

    found, rounds = checked(run), run.rounds()
    results = found.results
    shares = results["contributions"]
    if run.ledger().start is None or not rounds:
        raise RunError(f"{run.ledger_file} is missing or has no rounds; a report needs the whole record")
    measured = truths(run)
    changes = [sentence for _, sentence in change_sentences(run.ledger())]
    # Runs of earlier versions, and runs of a store, have no examples.
    bands = results.get("intervals_over_rounds", [])
    return page(
        "run.html.j2",
        name=run.path.resolve().name,
        # The folder's name alone, because its path on the reader's machine is private.
        data_name=Path(results["data"]).name,
        method=printed_name(run.config.algorithm),
        results=results,
        glance=glance(results, run.config, measured, found.doubt, changes),
        truths=measured,
        counted=(counted := counted_as(run.config.data)),
        sites=sites_table({**results, COUNTED: counted}, "report", list(shares)),
        metrics=sites_table(results, "metrics", list(shares)),
        sites_per_round=run.config.sites_per_round,
        fairness=[(label, results["fairness"][key], note) for key, label, note in FAIRNESS_ROWS],
        # One round makes no line.
        bands=len(bands) > 1,
        too_many_bands=len(shares) > MOST_BANDS,
        meanings=meanings(results, gives=bool(shares_given(results))),
        terms=terms_in_words(results["algorithm"], rounds),
        # More pairs of bars than this can't be told apart.
        given=figures.gives_and_needs(results) if 0 < len(shares_given(results)) <= MOST_PAIRS else None,
        contributions=figures.contributions(rounds, bands),
        dice=figures.dice(results),
        progress=figures.progress(rounds),
        some_absent=len({frozenset(done.sites) for done in rounds}) > 1,
        freerider=figures.freerider(results) if results["freerider"] else None,
        alarms=[alarm for found in results["freerider"].values() for alarm in found["alarms"]],
        examples=figures.examples(run, results) if examples else None,
        config=run.config_file.read_text("utf-8"),
        data=run.ledger().sites,
        card=model_card(run, results, run.ledger().sites),
    )
