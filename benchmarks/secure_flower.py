"""FedCE under SecAgg+ on real Flower processes: a SuperLink, three SuperNodes, examples/flower_secure.

python benchmarks/secure_flower.py [--rounds 3]
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from time import monotonic, sleep

import tomli_w

from fedce.engines.flower.launch import QUIET, Federation
from fedce.engines.launching import Programs

SITES = ("east", "north", "south")
EXAMPLE = Path(__file__).parents[1] / "examples" / "flower_secure"
LIMIT = 600.0


def write_app(folder: Path, out: Path, rounds: int) -> Path:
    package = folder / "examples" / "flower_secure"
    shutil.copytree(EXAMPLE, package)
    parts = {f"{kind}app": f"examples.flower_secure.{kind}_app:app" for kind in ("server", "client")}
    app = {
        "publisher": "fedce",
        "components": parts,
        "config": {"out": str(out), "rounds": rounds, "sites": len(SITES)},
    }
    about = {"name": "secure", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []}
    (folder / "pyproject.toml").write_text(tomli_w.dumps({"project": about, "tool": {"flwr": {"app": app}}}))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Programs(Path(name) / "logs", QUIET) as programs:
        folder, out = Path(name), Path(name) / "shares.json"
        app = write_app(folder / "app", out, options.rounds)
        federation = Federation(programs, folder / "engine", SITES, "")
        federation.start()
        began = monotonic()
        run_id = federation.submit(app)
        while not out.exists():
            assert monotonic() - began < LIMIT, programs.tail("superlink")
            assert not federation.status(run_id).startswith("finished:failed"), programs.tail("superlink")
            sleep(1)
        print(f"{options.rounds} rounds in {monotonic() - began:.0f} s; shares {out.read_text()}")


if __name__ == "__main__":
    main()
