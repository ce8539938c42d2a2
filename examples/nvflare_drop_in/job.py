"""A job of NVFlare's FedAvg; contributions need only the lines that end with "# fedce".

python -m examples.nvflare_drop_in.job [ROUNDS]
"""

import sys
from pathlib import Path

import torch
from examples.nvflare_drop_in.model import Points
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import ExchangeFormat, TransferType
from nvflare.recipe import SimEnv

from fedce.engines.nvflare import FedCEAggregator  # fedce

RUNS = Path("runs/nvflare-drop-in").absolute()


def main(n_rounds: int = 10) -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Points()
    torch.save(model.state_dict(), RUNS / "start.pt")
    learned = [name for name, _ in model.named_parameters()]  # fedce
    recipe = FedAvgRecipe(
        name="points",
        model=model,
        initial_ckpt=str(RUNS / "start.pt"),
        min_clients=3,
        num_rounds=n_rounds,
        train_script=str(Path(__file__).with_name("client.py")),
        aggregator=FedCEAggregator("plus", learned, history_file=str(RUNS / "history.json")),  # fedce
        server_expected_format=ExchangeFormat.PYTORCH,  # fedce
        params_transfer_type=TransferType.DIFF,  # fedce
    )
    recipe.execute(SimEnv(num_clients=3, num_threads=3, workspace_root=str(RUNS / "workspace")))
    for site, share in FedCEAggregator(history_file=str(RUNS / "history.json")).shares.items():  # fedce
        print(f"{site}: {100 * share:.1f} %")  # fedce


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
