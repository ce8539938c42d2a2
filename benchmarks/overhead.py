"""Seconds a round of the local engine with one worker, over a plain PyTorch loop that does the same work.

The plain loop is FedCE as one would write it in a script: a network and an optimizer for each site, state dicts, the
same batches, the same two validations a round. Both run in turns in this process on one thread, so that the machine's
moods cancel; the figure is the ratio of the medians.

    python benchmarks/overhead.py [--rounds 12] [--repeats 3]
"""

import argparse
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import torch
from monai.losses import DiceLoss
from monai.networks.nets import UNet

import fedce
from fedce.experiment import Observer
from fedce.learn import dice

CHANNELS = (16, 32, 64, 128)


def tensors(pixels, masks, rows):
    return torch.tensor(pixels[rows]), torch.tensor(masks[rows]).bool()


def plain_loop(sites, n_rounds: int) -> list[float]:
    """Seconds of each round."""
    torch.manual_seed(0)
    names = [site.name for site in sites]
    parts = {
        site.name: {
            part: tensors(site.images, site.masks, getattr(site.split, part)) for part in ("train", "validation")
        }
        for site in sites
    }

    def network():
        return UNet(2, sites.n_channels, len(sites.classes), CHANNELS, (2, 2, 2), norm="batch")

    networks = {name: network() for name in names}
    optimizers = {name: torch.optim.Adam(networks[name].parameters(), 1e-3, (0.9, 0.99)) for name in names}
    w = {key: value.clone() for key, value in network().state_dict().items()}
    trainable = [key for key, _ in network().named_parameters()]
    loss_of = DiceLoss(sigmoid=True)
    sent: dict[str, dict] = {}
    rho = dict.fromkeys(names, 1 / len(names))
    credit = dict.fromkeys(names, 0.0)

    def score(model, part):
        model.eval()
        with torch.inference_mode():
            scores = [
                dice(model(x.float() / 255) > 0, y) for x, y in zip(part[0].split(32), part[1].split(32), strict=True)
            ]
        return torch.cat(scores).mean().item()

    seconds = []
    for _ in range(n_rounds):
        start = perf_counter()
        errors = {}
        for name in names:
            model, (x, y) = networks[name], parts[name]["train"]
            if name in sent:
                without = {
                    key: (value - rho[name] * sent[name][key]) / (1 - rho[name]) if value.is_floating_point() else value
                    for key, value in w.items()
                }
                model.load_state_dict(without)
                errors[name] = 1 - score(model, parts[name]["validation"])
            model.load_state_dict(w)
            score(model, parts[name]["validation"])
            model.train()
            for rows in torch.randperm(len(x)).split(8):
                optimizers[name].zero_grad()
                loss = loss_of(model(x[rows].float() / 255), y[rows].float())
                loss.backward()
                optimizers[name].step()
            sent[name] = {key: value.clone() for key, value in model.state_dict().items()}
        deltas = {name: torch.cat([(sent[name][key] - w[key]).flatten() for key in trainable]) for name in names}
        total = sum(rho[name] * deltas[name] for name in names)
        cos = {
            name: 1 - torch.cosine_similarity(deltas[name], total - rho[name] * deltas[name], 0).item()
            for name in names
        }
        for name in names:
            err = errors[name] / sum(errors.values()) if errors else 1 / len(names)
            credit[name] += cos[name] / sum(cos.values()) * err
        rho = {name: credit[name] / sum(credit.values()) for name in names}
        w = {
            key: sum(rho[name] * sent[name][key] for name in names)
            if value.is_floating_point()
            else sent[names[0]][key]
            for key, value in w.items()
        }
        seconds.append(perf_counter() - start)
    return seconds


def engine(sites, n_rounds: int) -> list[float]:
    """Seconds from round to round, ledger and checkpoints included."""
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        observer = Observer(start=lambda *_: ends.append(perf_counter()), round=lambda _: ends.append(perf_counter()))
        fedce.run(sites, rounds=n_rounds, workers=1, out=Path(folder) / "run", observer=observer)
    return [after - before for before, after in pairwise(ends)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sites = fedce.load_sites("fundus6", scale="demo")
    ratios = []
    for repeat in range(options.repeats):
        # The first round of either warms caches and has no second validation.
        plain = statistics.median(plain_loop(sites, options.rounds)[1:])
        ours = statistics.median(engine(sites, options.rounds)[1:])
        ratios.append(ours / plain)
        print(f"{repeat + 1}: plain {plain:.3f} s a round, engine {ours:.3f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"engine / plain loop: median {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
