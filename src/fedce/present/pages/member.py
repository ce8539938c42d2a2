"""One member's page: what it may know where shares are not for everybody's eyes."""

import re
from pathlib import Path

from fedce.base.files import write_bytes
from fedce.present.columns import sites_table
from fedce.present.gains import gain_sentences, keeps_sentence
from fedce.present.pages import page
from fedce.record.folder import RunFolder
from fedce.record.publish import member_view


def write_member(run: RunFolder, site: str, out: Path | None) -> Path:
    # A name in somebody else's results may be anything; the file stays in the folder.
    safe = re.sub(r"[^\w.-]", "_", site)
    path = out or run.path / f"member-{safe}.html"
    view = member_view(run, site)
    metrics = sites_table(view, "metrics", [site])
    gains = [*gain_sentences(view), *keeps_sentence(view)]
    write_bytes(path, page("member.html.j2", name=run.path.resolve().name, view=view, metrics=metrics, gains=gains))
    return path
