"""Builds the wheel and the source archive from what is committed, and tries the wheel away from the repository.

python tools/release.py          writes dist/; then installs the wheel into a new environment of each Python from 3.11
                                 to 3.14 that is found, and trains with it
python tools/release.py --quick  writes nothing; tries the wheel with this Python and the packages beside it (CI)
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TRAINING = ("-m", "fedce", "run", "--scale", "tiny", "--out", "run")
SHORT = ("--rounds", "1", "--workers", "1", "--set", "recipe=small")
WHERE = "import fedce, pathlib; print(pathlib.Path(fedce.__file__).parent)"


def call(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command in a folder; returns what it prints. If it fails, so does this program, with its output."""
    # Nothing of the repository may be imported by accident.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**plain, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed in {folder}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive from the files of the last commit, and the wheel from the source archive."""
    committed = folder / "committed"
    committed.mkdir()
    call(["git", "archive", "--output", folder / "committed.tar", "HEAD"], ROOT)
    unpack(folder / "committed.tar", committed)
    backend = "import setuptools.build_meta as backend, sys; getattr(backend, sys.argv[1])(sys.argv[2])"
    call([sys.executable, "-c", backend, "build_sdist", folder], committed)
    (archive,) = folder.glob("fedce-*.tar.gz")
    unpack(archive, folder)
    call([sys.executable, "-c", backend, "build_wheel", folder], folder / archive.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("fedce-*.whl")
    return wheel, archive


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")


def check(python: str | Path, folder: Path, expected: Path, training: Sequence[str], **environment: str) -> None:
    """Raise unless this Python imports fedce from `expected`, and trains and verifies a run in `folder`."""
    folder.mkdir()
    found = Path(call([python, "-c", WHERE], folder, environment).strip())
    if expected not in found.parents:
        sys.exit(f"fedce came from {found}, not from {expected}")
    key = {"FEDCE_KEY": str(folder / "key.pem")}
    call([python, *training], folder, {**environment, **key})
    call([python, "-m", "fedce", "ledger", "verify", "run"], folder, {**environment, **key})
    if not (folder / "run" / "report.html").exists():
        sys.exit(f"the run in {folder} has no report: the wheel lacks its templates")


def quick(wheel: Path, folder: Path) -> None:
    """The wheel with this Python and the packages that are installed beside it."""
    site = folder / "site"
    call([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], folder)
    check(sys.executable, folder / "elsewhere", site, (*TRAINING, *SHORT), PYTHONPATH=str(site))
    print(f"{wheel.name} was imported, trained and verified outside the repository")


def python_of(version: str) -> str | None:
    """A Python of this version that starts: on the path, or one that pyenv or uv has installed."""
    folders = (".pyenv/versions", ".local/share/uv/python")
    beside = (found for folder in folders for found in Path.home().glob(f"{folder}/*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *sorted(map(str, beside))):
        # What pyenv puts on the path exists even for a Python that is not switched on.
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def whole(wheel: Path, folder: Path) -> None:
    """The wheel in a new environment of each Python that is found."""
    found = {version: python_of(version) for version in PYTHONS}
    for version, python in found.items():
        if python is None:
            continue
        print(f"Python {version}: a new environment with the versions in constraints.txt", flush=True)
        environment = folder / f"environment-{version}"
        call([python, "-m", "venv", environment], folder)
        mine = environment / "bin" / "python"
        call([mine, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, wheel], folder)
        check(mine, folder / f"elsewhere-{version}", environment, TRAINING)
        print(f"Python {version}: fedce run --scale tiny trained, reported and verified", flush=True)
    missing = [version for version, python in found.items() if python is None]
    print(f"missing here, and not tried: {', '.join(missing) or 'none'}")
    if len(missing) == len(PYTHONS):
        sys.exit("no Python was found to try the wheel with")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="with this Python alone; writes nothing")
    is_quick = parser.parse_args().quick
    with TemporaryDirectory(prefix="fedce-release-") as name:
        folder = Path(name)
        if call(["git", "status", "--porcelain"], ROOT):
            print("changes that are not committed are left out")
        built = build(folder)
        if is_quick:
            quick(built[0], folder)
            return
        (ROOT / "dist").mkdir(exist_ok=True)
        for file in built:
            print(f"written: {shutil.copy(file, ROOT / 'dist')}", flush=True)
        whole(built[0], folder)


if __name__ == "__main__":
    main()
