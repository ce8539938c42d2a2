"""A contestant's job, and its notes about its work; it imports little, because the measuring process imports it."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

SITES = tuple(f"site{number}" for number in range(1, 7))
"""Folders with images/ and masks/: the first half of each site's images trains, the next quarter validates."""
VARIABLE = "BENCHMARK_JOB"
"""The environment variable that names the job; all processes of a contestant inherit it."""


@dataclass(frozen=True)
class Job:
    """A federated job; what is not stated here is the same in all."""

    size: int = 64
    channels: tuple[int, ...] = (16, 32, 64, 128)
    res_units: int = 0
    rounds: int = 10
    images: int = 40
    """Training images of each site."""


@dataclass(frozen=True)
class Given:
    """A job with its images and a folder for its output."""

    job: Job
    data: Path
    out: Path

    @classmethod
    def here(cls) -> Self:
        values = json.loads(os.environ[VARIABLE])
        job = values["job"]
        return cls(Job(**{**job, "channels": tuple(job["channels"])}), Path(values["data"]), Path(values["out"]))

    @property
    def environment(self) -> Mapping[str, str]:
        values = {"job": asdict(self.job), "data": str(self.data), "out": str(self.out)}
        return {VARIABLE: json.dumps(values)}

    def note(self, site: str, **values: float) -> None:
        """A line of a site's notes: Dice on its validation images, steps and loss of an epoch, Dice of the test."""
        with (self.out / f"{site}.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")
