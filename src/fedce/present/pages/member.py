"""One member's page, for consortia in which a member may see only its own share."""

import re
from pathlib import Path

from fedce.base.files import write_bytes
from fedce.data.shape import counted_as
from fedce.present.columns import sites_table
from fedce.present.gains import gain_sentences, keeps_sentence
from fedce.present.pages import page
from fedce.present.worth import definitions
from fedce.record.folder import RunFolder
from fedce.record.publish import member_view


def write_member(run: RunFolder, site: str, out: Path | None) -> Path:
    # A site's name in the results may be anything; the file must stay in the folder.
    safe = re.sub(r"[^\w.-]", "_", site)
    path = out or run.path / f"member-{safe}.html"
    view = member_view(run, site)
    metrics = sites_table(view, "metrics", [site])
    gains = [*gain_sentences(view), *keeps_sentence(view)]
    content = page(
        "member.html.j2",
        name=run.path.resolve().name,
        view=view,
        counted=counted_as(run.config.data),
        metrics=metrics,
        gains=gains,
        definitions=definitions(view, gives=view.get("gives") is not None),
    )
    write_bytes(path, content)
    return path
