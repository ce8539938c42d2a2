"""Hospitals that cheat with programs of their own, over TLS: real SuperNodes, and real NVFlare kits.

Six sites of fundus6 (tiny). One lies on the wire: its answer is another forgery in every round. Another one trains
honestly and turns its update around (`flip`); only its own copy of the experiment says so. Their programs find a
changed fedce on their path (hostile_site/sitecustomize.py); all other programs are as installed. Printed is what the
ledger holds of both in every round, and whether the run ended sound.

    python -m benchmarks.hostile [--engines flower,nvflare]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from benchmarks.kills import LIMIT, Coordinator
from benchmarks.nvflare_consortium import Consortium, wait_for
from benchmarks.secured import register, secure

from fedce.base.config import load
from fedce.base.identity import Identity
from fedce.engines.launching import Programs
from fedce.record.entries import Event, Round
from fedce.record.folder import RunFolder
from fedce.record.verify import verify
from fedce.site.wire import Parcel, ReplyForm, Signed

HERE = Path(__file__).parent
SITES = tuple(f"site{i}" for i in range(1, 7))
ON_THE_WIRE, IN_TRAINING = "site2", "site4"
ATTACKERS = {ON_THE_WIRE: "wire", IN_TRAINING: "flip"}
CHANGES = {
    "data.source": "fundus6",
    "data.scale": "tiny",
    "recipe": "small",
    "rounds": 9,
    "worth.every": 0,
    # Who lies is refused, and the round goes on with the others.
    "engine.min_sites": 4,
}
"""As many rounds as the guard needs to know everybody, and each lie at least once."""

Lie = Callable[[Parcel, Identity, Parcel], Parcel]
"""(the true answer, the site's key, its first answer) to what is sent instead."""


def _signed(true: Parcel, identity: Identity, **changes: object) -> Parcel:
    """The true answer with other content, signed with the site's own key."""
    form = ReplyForm.read(Signed.read(true.about).content).model_copy(update=changes)
    content = form.model_dump_json()
    return Parcel(Signed(content=content, signature=identity.sign(content)).model_dump_json(), true.arrays)


def rubbish(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return Parcel("{'kind': \x00" * 1000, {"params": np.zeros(7, np.uint8)})


def in_anothers_name(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return _signed(true, identity, site="site1")


def replay(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return first


def foreign_key(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    with tempfile.TemporaryDirectory() as folder:
        return _signed(true, Identity.at(Path(folder) / "key.pem"))


def another_model(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return Parcel(true.about, {name: np.zeros_like(array) for name, array in true.arrays.items()})


def not_a_number(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    vector = np.full_like(true.arrays["params"], np.nan)
    forged = _signed(true, identity, model=sha256(vector.data).hexdigest())
    return Parcel(forged.about, {"params": vector})


def more_images(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return _signed(true, identity, n_train=10**6)


def far_too_large(true: Parcel, identity: Identity, first: Parcel) -> Parcel:
    return Parcel(true.about, {"params": np.zeros(16 * true.arrays["params"].size, np.float32)})


LIES: Mapping[str, Lie] = {
    "its true answer": lambda true, identity, first: true,
    "rubbish in place of an answer": rubbish,
    "an answer in another site's name": in_anothers_name,
    "its first answer once more": replay,
    "signed with a foreign key": foreign_key,
    "another model than the signed one": another_model,
    "a model that is not a number": not_a_number,
    "a million training images": more_images,
    "sixteen models in one": far_too_large,
}
"""What the liar sends, round by round."""


@contextmanager
def hostile(programs: Programs, site: str) -> Iterator[None]:
    """What is started here runs on an attacker's machine, if the site is one."""
    before = dict(programs.environment)
    if site in ATTACKERS:
        path = [str(HERE / "hostile_site"), str(HERE.parent), *filter(None, [before.get("PYTHONPATH")])]
        programs.environment |= {"PYTHONPATH": os.pathsep.join(path), "FEDCE_HOSTILE": ATTACKERS[site]}
    try:
        yield
    finally:
        programs.environment.clear()
        programs.environment.update(before)


def over_flower(folder: Path) -> RunFolder:
    made = Coordinator(folder, CHANGES)
    federation, keys = made.federation, folder / "keys"
    secure(federation, keys, dict.fromkeys(SITES, keys))
    with made.programs:
        federation.start_superlink()
        for site in SITES:
            register(federation, keys, site)
            with hostile(made.programs, site):
                federation.start_supernode(site)
        federation.submit(made.app)
        made.wait()
    return RunFolder(made.out)


def over_nvflare(folder: Path) -> RunFolder:
    from fedce.engines.nvflare import launch

    consortium = Consortium(folder, SITES, "fundus6")
    changes = {**CHANGES, "engine.name": "nvflare", "engine.members": dict.fromkeys(SITES, "")}
    launch.write_job(load(None, changes), folder / "job", "federation", "benchmarks/hostile.py")
    run = RunFolder(consortium.runs / "federation")
    with consortium.programs as programs:
        for name in ("localhost", *SITES):
            with hostile(programs, name):
                consortium.start(name)
        keeping = [sys.executable, "-m", "fedce.engines.nvflare.keeping", str(folder / "job")]
        programs.start("keeper", [*keeping, "--kit", str(consortium.admin)])
        wait_for(lambda: programs.running["keeper"].poll() is not None, LIMIT, "the run did not end")
    return run


ENGINES: Mapping[str, Callable[[Path], RunFolder]] = {"flower": over_flower, "nvflare": over_nvflare}


def table(engine: str, run: RunFolder) -> str:
    """A row for each round: what both attackers did, and what the record says of it."""
    head = "| round | sent by the liar | recorded | its weight | weight of `flip` |"
    lines, said = [f"{engine}:", head, "|---|---|---|---:|---:|"], list[str]()
    for line in run.ledger():
        if isinstance(line, Event) and line.site == ON_THE_WIRE:
            said.append(line.what)
        if isinstance(line, Round):
            what = [*LIES][line.round_no % len(LIES)]
            recorded = "; ".join([*said, *filter(None, [line.rejected.get(ON_THE_WIRE)])]) or "nothing"
            lines.append(f"| {line.round_no + 1} | {what} | {recorded} | {_weights(line)} |")
            said = []
    shares, flags = run.results["contributions"], run.results["flags"]
    lines.append(
        f"shares at the end: {ON_THE_WIRE} {shares.get(ON_THE_WIRE, 0):.3f}, {IN_TRAINING} "
        f"{shares.get(IN_TRAINING, 0):.3f}; flags: {flags}; problems of the record: {len(verify(run).problems)}"
    )
    return "\n".join(lines)


def _weights(done: Round) -> str:
    weights = [done.sites[site].weight if site in done.sites else 0.0 for site in (ON_THE_WIRE, IN_TRAINING)]
    return " | ".join(f"{weight:.3f}" for weight in weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(ENGINES))
    for engine in parser.parse_args().engines.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(table(engine, ENGINES[engine](Path(folder))), flush=True)


if __name__ == "__main__":
    main()
