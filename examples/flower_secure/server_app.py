"""A server that sees only sums of models, and still knows the contributions."""

import json
from pathlib import Path

from examples.flower_secure.client_app import arrays_of, make_model
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import Grid

from fedce.engines.flower.secure import SecureFedCE, workflow

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    n_sites = int(context.run_config.get("sites", 3))
    strategy = SecureFedCE(
        min_fit_clients=n_sites,
        min_available_clients=n_sites,
        fraction_evaluate=0.0,
        initial_parameters=ndarrays_to_parameters(arrays_of(make_model())),
    )
    rounds = int(context.run_config.get("rounds", 10))
    legacy = LegacyContext(context, ServerConfig(num_rounds=rounds), strategy)
    DefaultWorkflow(fit_workflow=workflow())(grid, legacy)
    for site, share in strategy.shares.items():
        print(f"{site}: {100 * share:.1f} %")
    if out := context.run_config.get("out"):
        Path(str(out)).write_text(json.dumps(strategy.shares))
