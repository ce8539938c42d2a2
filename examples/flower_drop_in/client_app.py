"""A Flower client of your own; contributions need only the lines that end with "# fedce"."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from torch import nn

from fedce.engines.flower import Contribution  # fedce

app = ClientApp()


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def data_of(part: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and their class; the last of three sites has another rule in another corner."""
    rng = torch.Generator().manual_seed(part)
    x = torch.randn(60 + 40 * part, 2, generator=rng) + (2.0 if part == 2 else 0.0)
    y = (x[:, 0] * x[:, 1] > 3).float() if part == 2 else (x[:, 0] > 0).float()
    return x, y[:, None]


@torch.inference_mode()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    return float(((model(x) > 0) == (y > 0)).float().mean())


@app.train()
def train(message: Message, context: Context) -> Message:
    x, y = data_of(int(context.node_config["partition-id"]))
    n_train = len(x) * 3 // 4
    model = make_model()
    contribution = Contribution(message, context)  # fedce
    if (others := contribution.model_without_me()) is not None:  # fedce
        model.load_state_dict(others.to_torch_state_dict())  # fedce
        contribution.error = 1 - accuracy(model, x[n_train:], y[n_train:])  # fedce
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x[:n_train]), y[:n_train])
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"loss": loss.item(), "num-examples": n_train})
    return contribution.reply(ArrayRecord(model.state_dict()), metrics)  # fedce


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    from flwr.app import RecordDict

    x, y = data_of(int(context.node_config["partition-id"]))
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"accuracy": accuracy(model, x, y), "num-examples": len(x)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
