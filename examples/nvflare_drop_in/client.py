"""A client script for NVFlare's FedCE; fedce's aggregator reads the same keys, so the script stays unchanged."""

import nvflare.client as flare
import torch
from examples.nvflare_drop_in.model import Points, accuracy, data_of
from nvflare.app_opt.pt.fedce import PTFedCEHelper
from torch import nn

flare.init()
site = flare.get_site_name()
x, y = data_of(int(site.removeprefix("site-")) - 1)
n_train = len(x) * 3 // 4
mine, scores = None, [0.0]
while flare.is_running():
    received = flare.receive()
    model = Points()
    model.load_state_dict(received.params)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    if mine is not None:
        weight = PTFedCEHelper.get_contribution_weight(received, site)
        scores.append(accuracy(PTFedCEHelper.make_minus_model(model, mine, weight), x[n_train:], y[n_train:]))
    metrics = {"accuracy": accuracy(model, x[n_train:], y[n_train:])}
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x[:n_train]), y[:n_train]).backward()
        optimizer.step()
    mine = {name: value.clone() for name, value in model.state_dict().items()}
    changed = {name: mine[name] - before[name] for name in mine}
    result = flare.FLModel(params=changed, params_type=flare.ParamsType.DIFF, metrics=metrics)
    flare.send(PTFedCEHelper.set_minus_model_score(result, 1 - sum(scores) / len(scores)))
