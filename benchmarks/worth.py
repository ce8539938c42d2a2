"""What measuring worth costs: a FedAvg run with ballots at their usual rate over the same run without, in CPU seconds.

python -m benchmarks.worth [--data fundus6] [--rounds 42] [--repeats 3]
"""

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

from fedce.base.config import load
from fedce.engines.starting import execute


def measured(data: str, rounds: int, every: int | None, folder: Path) -> tuple[float, float]:
    """CPU seconds of a run in this process, and the megabytes that it carries."""
    keys = {"data.source": data, "rounds": rounds, "algorithm.name": "fedavg", "engine.workers": 1}
    config = load(None, keys | ({} if every is None else {"worth.every": every}))
    before = process_time()
    result = execute(config, folder, replace=True, report=False)
    return process_time() - before, float(result.values["megabytes"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="fundus6")
    options.add_argument("--rounds", type=int, default=42)
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    ratios = []
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        measured(given.data, 2, 0, place)  # Imports and caches.
        for _ in range(given.repeats):
            (off, megabytes), (on, more) = (measured(given.data, given.rounds, every, place) for every in (0, None))
            ratios.append(on / off)
            print(
                f"without {off:.1f} s, {megabytes:.0f} MB; with {on:.1f} s, {more:.0f} MB; {on / off:.3f}", flush=True
            )
    print(f"median {median(ratios):.3f}, range {min(ratios):.3f} to {max(ratios):.3f}; goal at most 1.15")


if __name__ == "__main__":
    main()
