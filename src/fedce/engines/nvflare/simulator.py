"""NVFlare's simulator in this process, so that it ends with its parent; its own command would leave a child."""

import sys

from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner


def main(job: str, workspace: str, clients: str) -> int:
    # As many threads as clients: with fewer, clients are ended and started again at every task.
    runner = SimulatorRunner(job, workspace, clients=clients, threads=clients.count(",") + 1, log_config="concise")
    done = MainProcessMonitor.run(runner.simulator_run_main, run_dir=workspace)
    return done if isinstance(done, int) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
