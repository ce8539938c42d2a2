"""FedAvg in Flower's own simulation, on Ray: a training and an evaluation in each round, which is less than FedCE.

A client keeps nothing but its images: Adam's moments start anew in each round, and no second model is validated.
"""

import torch
from benchmarks.contestants import work
from benchmarks.contestants.given import SITES, Given
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

N_CPUS = 2
client, server = ClientApp(), ServerApp()


def received(message: Message, context: Context) -> tuple[str, work.Site, nn.Module]:
    torch.set_num_threads(1)
    given = Given.here()
    name = SITES[int(context.node_config["partition-id"])]
    model = work.network_of_process(given.job)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return name, work.read(given.data / name, given.job.images), model


@client.train()
def train(message: Message, context: Context) -> Message:
    name, site, model = received(message, context)
    Given.here().note(name, **work.train(model, work.adam(model), site.train))
    metrics = MetricRecord({"num-examples": len(site.train)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    name, site, model = received(message, context)
    dice = work.score(model, site.validation)
    Given.here().note(name, dice=dice)
    metrics = MetricRecord({"num-examples": len(site.validation), "dice": dice})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    job, n = Given.here().job, len(SITES)
    strategy = FedAvg(min_train_nodes=n, min_evaluate_nodes=n, min_available_nodes=n)
    strategy.start(grid, ArrayRecord(work.network(job).state_dict()), num_rounds=job.rounds)


if __name__ == "__main__":
    torch.set_num_threads(1)
    backend = {"init_args": {"num_cpus": N_CPUS}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=len(SITES), backend_config=backend)
