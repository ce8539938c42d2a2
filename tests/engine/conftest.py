"""What the engines' tests share: three small hospitals, and the run of the local engine to compare with."""

from pathlib import Path

import pytest

from support import HOSPITALS, PLANNED, VOLUMES, write_site


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("hospitals")
    for i, site in enumerate(HOSPITALS):
        write_site(root, site, n=10 + 4 * i)
    return root


@pytest.fixture(scope="session")
def planned(tmp_path_factory, images: Path, fedce) -> Path:
    """As a new user would: by the plan, with norms that stay at the sites, and each site alone beside it."""
    out = tmp_path_factory.mktemp("planned") / "run"
    run = fedce("run", "--data", images, *PLANNED, "--set", "recipe=plan", "--workers", 1, "--out", out)
    assert run.exit_code == 0, run.output
    return out


@pytest.fixture(scope="session")
def volumes(tmp_path_factory, fedce) -> Path:
    out = tmp_path_factory.mktemp("volumes") / "run"
    run = fedce("run", *VOLUMES, "--workers", 1, "--out", out)
    assert run.exit_code == 0, run.output
    return out
