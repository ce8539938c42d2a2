"""The server of a Flower app of your own; contributions need only the lines with "# fedce"."""

from examples.flower_drop_in.client_app import make_model
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedce.engines.flower import FedCE  # fedce

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedCE(min_available_nodes=3)  # fedce: was FedAvg(min_available_nodes=3)
    strategy.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=10)
    for site, share in strategy.shares.items():  # fedce
        print(f"{site}: {100 * share:.1f} %")  # fedce
