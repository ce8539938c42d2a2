"""FedCE's server step for 6 sites and 7.8 million parameters, over a training round at 128x128 with 40 images a site.

The step is everything between the last reply and the next task: checks of the replies, Eqs. 2-6, aggregation. The
training round is one epoch over 40 images at each of 6 sites with a U-Net of that size, one core.

    python benchmarks/server_step.py [--repeats 5]
"""

import argparse
import statistics
from time import perf_counter

import numpy as np
import torch

from fedce.algorithms import FedCE
from fedce.algorithms.base import State
from fedce.config import ModelConfig, TrainConfig
from fedce.federation import rounds
from fedce.learn import Learner
from fedce.messages import Reply
from fedce.models import build
from fedce.params import Params

MODEL = ModelConfig(channels=(32, 64, 128, 256, 602), res_units=2)
N_SITES, N_IMAGES, SIZE = 6, 40, 128


class Replies:
    """An engine whose sites answer at once."""

    def __init__(self, state: State) -> None:
        rng = np.random.default_rng(0)
        noise = [rng.normal(0, 1e-3, state.params.layout.size).astype(np.float32) for _ in state.sites]
        self.models = [Params(state.params.layout, state.params.vector + part) for part in noise]

    def sites(self, known):
        return tuple(known)

    def ask(self, tasks):
        return [
            Reply(task.site, task.round_no, N_IMAGES, model, score=0.5, error_without=0.5)
            for task, model in zip(tasks, self.models, strict=True)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    learner = Learner(build(MODEL, 3, 2, 0), TrainConfig(), "unit", torch.device("cpu"))
    print(f"{learner.layout.n_trainable / 1e6:.2f} million parameters, {N_SITES} sites")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (N_IMAGES, 3, SIZE, SIZE)).astype(np.uint8)
    masks = (rng.random((N_IMAGES, 2, SIZE, SIZE)) > 0.5).astype(np.uint8)
    data = learner.batch(images, masks)
    start = learner.params
    learner.train(start, learner.batch(images[:8], masks[:8]), 0, {})
    state = State(sites=tuple("abcdef"[:N_SITES]), params=start)
    engine = Replies(state)
    ratios = []
    for repeat in range(options.repeats):
        begin = perf_counter()
        learner.train(start, data, 0, {})
        training = N_SITES * (perf_counter() - begin)
        begin = perf_counter()
        next(rounds(FedCE(), state, engine, 1))
        step = perf_counter() - begin
        ratios.append(step / training)
        print(
            f"{repeat + 1}: step {1000 * step:.0f} ms, training round {training:.1f} s, {100 * ratios[-1]:.2f} %",
            flush=True,
        )
    print(f"step / training round: median {100 * statistics.median(ratios):.2f} %, largest {100 * max(ratios):.2f} %")


if __name__ == "__main__":
    main()
