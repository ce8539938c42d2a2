"""One member's page: what it may know where shares are not for everybody's eyes."""

from pathlib import Path

from fedce.files import write_bytes
from fedce.publish import member_view
from fedce.record import RunFolder
from fedce.report.pages import page


def write_member(run: RunFolder, site: str, out: Path | None) -> Path:
    path = out or run.path / f"member-{site}.html"
    write_bytes(path, page("member.html.j2", name=run.path.resolve().name, view=member_view(run, site)))
    return path
