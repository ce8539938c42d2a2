"""What tests share: one small finished run, and the rule that CI skips nothing."""

import gc
import json
import locale
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import quick_start.sitecustomize
from fedce.cli import main
from processes import with_small_recipe

# Keys that tests make must not be the user's own; processes that tests start inherit this.
os.environ["FEDCE_KEY"] = str(Path(tempfile.mkdtemp(prefix="fedce-key-")) / "key.pem")
# Tests share the cores, and threads that wait for a core that another test has spin: that took nine times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(quick_start.sitecustomize.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Started in the background of a script, pytest ignores Ctrl-C, and so would every program that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
LOCALE = locale.setlocale(locale.LC_ALL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first: at the end of it the other worker takes over what is left."""
    folders = ("engine", "e2e")
    items.sort(key=lambda item: folders.index(item.path.parent.name) if item.path.parent.name in folders else 2)


def pytest_collection_finish() -> None:
    """What was imported stays to the end: forked processes need not copy it only because the collector looked at it."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_locale() -> None:
    """SimpleITK's DICOM writer, which only tests use, leaves the process in the C locale."""
    locale.setlocale(locale.LC_ALL, LOCALE)


@pytest.fixture(scope="session")
def fedce():
    """Run a command line in this process; returns click's result.

    Without an experiment file the recipe is "small" and the network tiny, unless a test names them: most tests are
    about other things than a plan or a network, which train longer.
    """

    def invoke(*arguments, cwd=None):
        before = Path.cwd()
        os.chdir(cwd or before)
        try:
            return CliRunner().invoke(main, with_small_recipe([str(argument) for argument in arguments]))
        finally:
            os.chdir(before)

    return invoke


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, fedce) -> Path:
    """A finished run of FedCE on fundus6 at the tiny scale."""
    out = tmp_path_factory.mktemp("run") / "tiny"
    result = fedce("run", "--scale", "tiny", "--rounds", 4, "--workers", 1, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["run"] == str(out)
    return out


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failure: whatever a test needs, .ci/run installs."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        reporter.write_line("tests were skipped, which CI does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine; install it to test the report in a browser")
    return found
