"""NVFlare's own FedCE in its simulator, a process for each site."""

from pathlib import Path

import torch
from benchmarks.contestants.given import SITES, Given
from benchmarks.contestants.work import network, options
from nvflare.app_opt.pt.recipes.fedce import FedCERecipe
from nvflare.recipe import SimEnv


def main() -> None:
    given = Given.here()
    model = network(given.job)
    # The server builds the network again, so the weights must come from a file.
    torch.save(model.state_dict(), given.out / "initial.pt")
    recipe = FedCERecipe(
        model={"class_path": "fedce.learning.residual_unet.ResidualUNet", "args": options(given.job)},
        trainable_param_names=[key for key, _ in model.named_parameters()],
        initial_ckpt=str(given.out / "initial.pt"),
        min_clients=len(SITES),
        num_rounds=given.job.rounds,
        train_script=str(Path(__file__).with_name("nvflare_client.py")),
        fedce_mode="times",
    )
    # As many threads as clients: with fewer, clients are ended and started again at every task.
    recipe.execute(SimEnv(clients=list(SITES), num_threads=len(SITES), workspace_root=str(given.out / "workspace")))


if __name__ == "__main__":
    main()
