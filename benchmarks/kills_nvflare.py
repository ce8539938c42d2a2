"""A run over NVFlare with random kills: of sites, of the coordinator, of their job processes; checked afterwards.

A provisioned federation of three sites on this machine (mutual TLS). Each kill is a SIGKILL at a random moment of a
random round; the killed program is started again, and `fedce.engines.nvflare.keeping` submits the job again.

    python benchmarks/kills_nvflare.py [--kills 6] [--rounds 10] [--seed 0] [--folder DIR]
"""

import argparse
import os
import random
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from fedce.base.config import load
from fedce.base.files import read_tensors
from fedce.engines.nvflare.launch import write_job
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from nvflare_consortium import Consortium, wait_for

SITES = ("site1", "site2", "site3")
LIMIT = 300.0
"""A run without a new round for this many seconds counts as hanging."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=600, help="so that a round takes some seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fedce-kills-"))
    consortium = Consortium(folder, SITES, "fundus6")
    config = load(
        None,
        {
            **{"data.source": "fundus6", "data.scale": "tiny", "model.channels": [4, 8], "rounds": given.rounds},
            **{"train.epochs": given.epochs, "engine.name": "nvflare", "engine.members": dict.fromkeys(SITES, "")},
        },
    )
    write_job(config, folder / "job", "kills", "benchmarks/kills_nvflare.py")
    run = RunFolder(consortium.runs / "kills")
    began = monotonic()
    with consortium.programs:
        consortium.start()
        keeping = [sys.executable, "-m", "fedce.engines.nvflare.keeping", str(folder / "job")]
        consortium.programs.start("keeper", [*keeping, "--kit", str(consortium.admin)])
        kill_at_random(consortium, run, given.kills, random.Random(given.seed))
        while not run.results_file.exists():
            n = len(run.rounds())
            wait_for(lambda n=n: run.results_file.exists() or len(run.rounds()) > n, LIMIT, f"no round after {n}")
    print(f"{given.kills} kills, {given.rounds} rounds, {monotonic() - began:.0f} s; {folder}")
    check(run, given.rounds)


def kill_at_random(consortium: Consortium, run: RunFolder, n_kills: int, rng: random.Random) -> None:
    for number in range(n_kills):
        before = len(run.rounds())
        wait_for(lambda n=before: len(run.rounds()) > n, LIMIT, f"no round after {before}")
        sleep(rng.uniform(0, 3))
        if run.results_file.exists():
            print(f"the run ended before kill {number + 1}")
            return
        victim = rng.choice(["localhost", *SITES])
        only_its_job = rng.random() < 0.5
        what = f"{victim}, its job process" if only_its_job else victim
        print(f"kill {number + 1}: {what}, in round {len(run.rounds()) + 1}", flush=True)
        if only_its_job:
            with suppress(IndexError, ProcessLookupError):
                os.kill(consortium.job_processes(victim)[0], signal.SIGKILL)
            continue
        consortium.kill(victim)
        sleep(rng.uniform(0, 5))
        consortium.start(victim)


def check(run: RunFolder, n_rounds: int) -> None:
    # Every round once and in order, all signatures, and every share from the recorded terms.
    assert verify(run).problems == ()
    rounds = run.rounds()
    assert len(rounds) == n_rounds, "rounds are missing"
    for done in rounds:
        total = sum(facts.weight for facts in done.sites.values())
        assert abs(total - 1) < 1e-9, f"round {done.round_no + 1}: weights sum to {total}"
    accounts = read_tensors(run.state_file)[1]["accounts"]
    print("site    rounds  credited  share")
    for site in SITES:
        taken_part = sum(site in done.sites for done in rounds)
        print(f"{site:7} {taken_part:6}  {accounts[site]['rounds']:8}  {run.results['contributions'][site]:.3f}")
        assert accounts[site]["rounds"] == taken_part, f"{site}: credit was lost or doubled"
    kinds = [line.kind for line in run.ledger()]
    print(f"resumed {kinds.count('resume')} times; all weights sum to 1, no credit lost or doubled")


if __name__ == "__main__":
    main()
