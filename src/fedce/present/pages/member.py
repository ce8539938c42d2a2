"""One member's page, for consortia in which a member may see only its own share."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedce.base.files import write_bytes
from fedce.data.shape import counted_as
from fedce.present.columns import sites_table
from fedce.present.gains import gain_sentences, keeps_sentence
from fedce.present.glance import verdict
from fedce.present.meanings import meanings
from fedce.present.pages import page
from fedce.present.sentences import in_doubt
from fedce.present.terms import Terms, terms_in_words
from fedce.present.worth import disbelieved
from fedce.record.folder import RunFolder
from fedce.record.publish import view_of
from fedce.record.verify import checked


def write_member(run: RunFolder, site: str, out: Path | None) -> Path:
    from fedce.present import figures

    # A site's name in the results may be anything; the file must stay in the folder.
    safe = re.sub(r"[^\w.-]", "_", site)
    path = out or run.path / f"member-{safe}.html"
    found = checked(run)
    view = view_of(run, found.results, site)
    content = page(
        "member.html.j2",
        name=run.path.resolve().name,
        view=view,
        counted=counted_as(run.config.data),
        verdict=verdict(found.results),
        doubt=in_doubt(found.doubt),
        metrics=sites_table(view, "metrics", [site]),
        gains=[*gain_sentences(view), *keeps_sentence(view)],
        votes=[] if view.get("votes_counted", True) else [disbelieved(site)],
        models=_models(view, found.results),
        meanings=meanings(view, gives=view.get("gives") is not None, alone="alone" in view),
        terms=_own_terms(run, site),
        contribution=figures.own_contribution(view, found.results) if view["by_round"] else None,
        progress=figures.own_progress(view),
    )
    write_bytes(path, content)
    return path


def _own_terms(run: RunFolder, site: str) -> Terms | None:
    found = terms_in_words(run.config.algorithm.name, run.rounds())
    return Terms(found.about, {site: found.by_site[site]}) if found and site in found.by_site else None


def _models(view: Mapping[str, Any], results: Mapping[str, Any]) -> list[tuple[str, float, Any]]:
    """The Dice of each model on the site's test cases, with its interval if it has one: together beside alone."""
    site = view["site"]
    alone = view.get("alone", {}).get(site)
    found = [
        ("Together: the common model", view["dice"], view["dice_interval"]),
        ("Alone: a model trained on its own cases", alone, results.get("alone_interval", {}).get(site)),
        ("Without it: the common model of the other sites", view["dice_without"], None),
    ]
    return [(name, dice, interval) for name, dice, interval in found if dice is not None]
