"""torch's random numbers for the time of one task."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

CPU = torch.device("cpu")


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Random numbers follow from the seed alone; afterwards those of the caller go on as before."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":
            # torch.manual_seed turns to every accelerator too, and keeps its caller's stack for each: milliseconds.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield
