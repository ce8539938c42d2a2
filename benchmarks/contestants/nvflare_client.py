"""A site of NVFlare's FedCE: in each round two validations and an epoch; it sends back the update and a score."""

from statistics import mean

import nvflare.client as flare
import torch
from benchmarks.contestants.given import Given
from benchmarks.contestants.work import adam, network, read, score, train, without
from nvflare.app_opt.pt.fedce import FedCEConstants


def main() -> None:
    torch.set_num_threads(1)
    flare.init()
    given, name = Given.here(), flare.get_site_name()
    site = read(given.data / name, given.job.images)
    model, others = network(given.job), network(given.job)
    optimizer, own = adam(model), None
    # NVFlare's convention: the first round, which has no model without the site, counts as a Dice of 0.
    dice_without = [0.0]
    while flare.is_running():
        if (message := flare.receive()) is None:
            break
        w = {key: torch.as_tensor(value) for key, value in message.params.items()}
        if own is not None:
            rho = message.meta[FedCEConstants.CONTRIBUTION_WEIGHTS][name]
            others.load_state_dict(without(w, own, rho))
            dice_without.append(score(others, site.validation))
        model.load_state_dict(w)
        dice = score(model, site.validation)
        given.note(name, dice=dice, **train(model, optimizer, site.train))
        own = {key: value.clone() for key, value in model.state_dict().items()}
        update = {key: own[key] - value for key, value in w.items()}
        meta = {FedCEConstants.MINUS_MODEL_SCORE: 1 - mean(dice_without)}
        flare.send(flare.FLModel(params=update, params_type="DIFF", metrics={"accuracy": dice}, meta=meta))


if __name__ == "__main__":
    main()
