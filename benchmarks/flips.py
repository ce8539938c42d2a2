"""Single bits changed in the files of a run: the run continues to the same bits, or one line names the changed file.

    python benchmarks/flips.py --flips 400

A run is stopped after two of its four rounds. In a copy of it, one bit of one file is changed, and the copy is resumed.
Bits are also changed in the files of a finished run before its report, and in the cache of decoded images.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any

import torch

from fedce.base.config import Config, parse
from fedce.base.errors import FedceError
from fedce.data import Sites, load_sites
from fedce.engines.starting import execute, resume
from fedce.federation.session import Observer, RoundSeen
from fedce.present.pages.run import write_report
from fedce.present.reported import complete
from fedce.record.folder import RunFolder

SAME, SAID = "the same bits", "one line"


def torture(
    flips: int,
    seed: int,
    folder: Path,
    model: Mapping[str, Any] = MappingProxyType({}),
    data: Mapping[str, Any] = MappingProxyType({}),
) -> Counter[tuple[str, str]]:
    """Change `flips` bits; counts outcomes by kind of file. An AssertionError names a change that passed unnoticed."""
    torch.set_num_threads(1)
    os.environ["FEDCE_CACHE"] = str(folder / "cache")
    rng = random.Random(seed)
    engine = {"workers": 1, "checkpoint_seconds": 0}
    config = parse({"rounds": 4, "data": {"scale": "tiny", **data}, "model": dict(model), "engine": engine})
    sites = load_sites(config.data)
    complete(execute(config, folder / "whole", sites=sites))
    _stopped(folder / "stopped", config, sites, after=2)
    shutil.rmtree(folder / "whole" / "checkpoint")  # No report reads it.
    tally: Counter[tuple[str, str]] = Counter()
    resumed, reported, cached = (_files(folder / name) for name in ("stopped", "whole", "cache"))
    for i in range(flips):  # All files in turn, so that small files are changed as often as large ones.
        turn = i // 4
        if i % 4 == 3:
            file = cached[turn % len(cached)]
            tally[("the cache's " + _kind(file), _load(folder, file, sites, rng))] += 1
        elif i % 4 == 2:
            file = reported[turn % len(reported)]
            tally[("a finished run's " + _kind(file), _report(folder, file, rng))] += 1
        else:
            file = resumed[(2 * turn + i % 4) % len(resumed)]
            tally[("a stopped run's " + _kind(file), _resume(folder, file, sites, rng))] += 1
    return tally


def _stopped(out: Path, config: Config, sites: Sites, after: int) -> None:
    def stop(done: RoundSeen) -> None:
        if done.round_no + 1 == after:
            raise KeyboardInterrupt

    try:
        execute(config, out, sites=sites, observer=Observer(round=stop))
    except KeyboardInterrupt:
        return


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def _kind(file: Path) -> str:
    return "memory of a site" if file.parent.parent.name == "sites" and file.suffix == ".safetensors" else file.name


def flip(file: Path, rng: random.Random) -> str:
    """Change one bit; returns where."""
    content = bytearray(file.read_bytes())
    # Half of them among the first bytes, where headers are.
    place, bit = rng.randrange(len(content) if rng.random() < 0.5 else min(len(content), 4096)), rng.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(bytes(content))
    return f"bit {bit} of byte {place} of {file}"


def _resume(folder: Path, file: Path, sites: Sites, rng: random.Random) -> str:
    from benchmarks.bits import same

    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / "stopped", copy)
    where = flip(copy / file.relative_to(folder / "stopped"), rng)
    try:
        resume(copy, sites=sites, report=False)
    except FedceError as error:
        return _said(error)
    assert same(folder / "whole", copy), f"{where} changed the results, and nothing was said"
    return SAME


def _report(folder: Path, file: Path, rng: random.Random) -> str:
    copy, before = folder / "copy" / "whole", (folder / "whole" / "report.html").read_bytes()
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(folder / "whole", copy)
    where = flip(copy / file.relative_to(folder / "whole"), rng)
    try:
        assert write_report(RunFolder(copy)).read_bytes() == before, f"{where} changed the page, and nothing was said"
    except FedceError as error:
        return _said(error)
    return SAME


def _said(error: FedceError) -> str:
    assert "\n" not in str(error), error
    return SAID


def _load(folder: Path, file: Path, sites: Sites, rng: random.Random) -> str:
    where = flip(file, rng)
    said: list[str] = []
    found = load_sites(sites.config, notify=said.append)
    ours, theirs = ([site.fingerprint for site in one] for one in (sites, found))
    assert ours == theirs, f"{where} changed the images, and nothing was said"
    return SAID if said else SAME


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    began = monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = torture(options.flips, options.seed, Path(folder))
    for (what, outcome), n in sorted(tally.items()):
        print(f"{n:4} {what}: {outcome}")
    print(f"{tally.total()} bits changed, none unnoticed; {monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
