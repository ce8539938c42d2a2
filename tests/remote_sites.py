"""Real sites behind a courier in this process, for tests of the remote engine."""

import json
from pathlib import Path

import pytest

from fedce.engines import remote
from fedce.federation.lines import versions
from fedce.federation.plan import resolve
from fedce.site.resident import Resident, at_hospital
from fedce.site.wire import Parcel, Signed
from support import Post

TINY = {"data.source": "fundus6", "data.scale": "tiny", "model.channels": [4, 8], "engine.name": "flower", "rounds": 3}


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(remote, "MEET_SECONDS", 0.0)
    monkeypatch.setattr(remote, "POLL_SECONDS", 0.01)


def resident(config, name: str, home: Path) -> Resident:
    return Resident(at_hospital(resolve(config), name, "fundus6"), name, home, versions())


def post_of(hospitals: dict[str, Resident]) -> Post:
    return Post({f"node-{name}": hospital.answer for name, hospital in hospitals.items()})


def crash_in_round_three(node: str, about: str, answer: object) -> object:
    """For `Post.when`: the coordinator ends in the middle of a round."""
    if '"round_no":2' in about and node == "node-site4":
        raise KeyboardInterrupt
    return answer


def replace_engine(config, name: str):
    return config.model_copy(update={"engine": config.engine.model_copy(update={"name": name, "workers": 1})})


def signed_anew(hospital: Resident, answer: Parcel, **changes) -> Parcel:
    """What a member that lies can do: change its answer, and sign it."""
    content = json.loads(Signed.read(answer.about).content)
    text = json.dumps({**content, **changes})
    return Parcel(Signed(content=text, signature=hospital.identity.sign(text)).model_dump_json(), answer.arrays)
