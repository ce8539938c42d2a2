"""The search for garbage is rare only while a program of fedce starts, and never among what it imported."""

import subprocess
import sys

import pytest

STEPS = """
import gc
gc.set_threshold(700, 10, 10)
usual, frozen = gc.get_threshold(), gc.get_freeze_count()
{start}
assert (gc.get_threshold() == usual) is {usual_at_start}
from fedce.base.garbage import imported
imported()
assert gc.get_threshold() == usual
assert (gc.get_freeze_count() > frozen) is {frozen}
"""


@pytest.mark.parametrize(
    ("start", "is_ours"), [("import fedce.cli", True), ("import fedce", False)], ids=["command", "library"]
)
def test_only_a_program_of_fedce_changes_the_search(start, is_ours):
    steps = STEPS.format(start=start, usual_at_start=not is_ours, frozen=is_ours)
    subprocess.run([sys.executable, "-c", steps], check=True)
