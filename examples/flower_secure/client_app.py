"""A hospital that sends its model only masked: Flower's SecAgg+ adds the masks, and FedCE's terms are measured here."""

import torch
from flwr.app import Context
from flwr.client import Client, ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import NDArrays, Scalar
from torch import nn

from fedce.engines.flower.secure import SecureContribution


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))


def arrays_of(model: nn.Module) -> NDArrays:
    return [value.detach().numpy() for value in model.state_dict().values()]


def load(model: nn.Module, arrays: NDArrays) -> nn.Module:
    state = dict(zip(model.state_dict(), map(torch.tensor, arrays), strict=True))
    model.load_state_dict(state)
    return model


def data_of(site: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and their class; the site called south has another rule in another corner."""
    rng = torch.Generator().manual_seed(sum(site.encode()))
    x = torch.randn(120, 2, generator=rng) + (2.0 if site == "south" else 0.0)
    y = (x[:, 0] * x[:, 1] > 3).float() if site == "south" else (x[:, 0] > 0).float()
    return x, y[:, None]


class Hospital(NumPyClient):
    def __init__(self, context: Context) -> None:
        self.context = context
        x, y = data_of(str(context.node_config["site"]))
        self.train, self.validation = (x[:90], y[:90]), (x[90:], y[90:])

    @torch.inference_mode()
    def score(self, arrays: NDArrays) -> float:
        x, y = self.validation
        return float(((load(make_model(), arrays)(x) > 0) == (y > 0)).float().mean())

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        mine = SecureContribution(self.context, parameters, config, self.score)
        model = load(make_model(), parameters)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            x, y = self.train
            nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
            optimizer.step()
        return mine.result(arrays_of(model))


def client_fn(context: Context) -> Client:
    return Hospital(context).to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
