"""One member's page, for consortia in which a member may see only its own share."""

import re
from pathlib import Path

from fedce.base.files import write_bytes
from fedce.data.shape import counted_as
from fedce.present.columns import sites_table
from fedce.present.meanings import meanings
from fedce.present.own import own_glance, own_models
from fedce.present.pages import page
from fedce.present.pages.truth import truths
from fedce.present.terms import Terms, terms_in_words
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
        glance=own_glance(view, found.results, run.config, truths(run), found.doubt),
        metrics=sites_table(view, "metrics", [site]),
        models=own_models(view, found.results),
        meanings=meanings(view, gives=view.get("gives") is not None),
        terms=_own_terms(run, site),
        contribution=figures.own_contribution(view, found.results) if view["by_round"] else None,
        progress=figures.own_progress(view),
    )
    write_bytes(path, content)
    return path


def _own_terms(run: RunFolder, site: str) -> Terms | None:
    found = terms_in_words(run.config.algorithm.name, run.rounds())
    return Terms(found.about, {site: found.by_site[site]}) if found and site in found.by_site else None
