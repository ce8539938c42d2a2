"""A finished run goes on: more rounds, and perhaps other members. Credit stays, and the ledger is continued."""

from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any

from fedce.base.config import Config, load_recorded
from fedce.base.errors import RunError
from fedce.base.files import digest_of, read_tensors
from fedce.core.best import has_stalled
from fedce.data import Sites, load_sites
from fedce.federation.challenge import challenge_of
from fedce.federation.lines import about_run, config_digest, versions, write_splits
from fedce.federation.plan import Participants
from fedce.federation.session import Observer, check_format, signing
from fedce.record.folder import RunFolder
from fedce.record.ledger import FORMAT


def is_finished(run_folder: RunFolder) -> bool:
    """Whether there are results, and no continuation that was begun after them."""
    return run_folder.results_file.exists() and run_folder.ledger().end is not None


def prolong(
    out: Path,
    more: Mapping[str, Any],
    *,
    sites: Sites | None = None,
    observer: Observer,
    command: str = "",
) -> None:
    """Let the finished run in `out` go on with these changes; its rounds are then run by a resume.

    The line "continued" in the ledger commits the change: a kill before it leaves the finished run as it was, and a
    kill after it leaves a run that can be resumed.
    """
    run_folder = RunFolder.open(out)
    with run_folder.lock():
        run_folder.mend_ledger()
        run_folder.settle()
        run_folder.check_chain()
        before = run_folder.config
        after = load_recorded(run_folder.config_file, more)
        _check(run_folder, before, after)
        line: dict[str, Any] = {
            "time": time(),
            "command": command,
            "round": len(run_folder.rounds()),
            **signing(run_folder, observer),
        }
        if after.engine.name == "local":
            data = sites or load_sites(after.data, notify=observer.notice)
            line |= _members(run_folder, Participants(after, data))
            place = run_folder.prepare(after)
            line |= write_splits(place / run_folder.splits_file.name, data)
        else:
            line |= _as_known(run_folder)
            place = run_folder.prepare(after)
        came_and_went: dict[str, list[str]] = line.pop("came_and_went")
        changed = {"rounds": [before.n_rounds, after.n_rounds], **came_and_went}
        line |= {
            "config": config_digest(after),
            "config_file": digest_of(place / run_folder.config_file.name),
            "changed": changed,
            **challenge_of(run_folder, after, line["round"]),
        }
        run_folder.append({"kind": "continued", "format": FORMAT, "versions": versions(), **line})
        run_folder.settle()
    told = "".join(f"; {word}: {', '.join(names)}" for word, names in came_and_went.items() if names)
    observer.notice(f"{out} goes on from round {line['round']} to round {after.n_rounds}{told}")


def _check(run_folder: RunFolder, before: Config, after: Config) -> None:
    """Refuse what can't go on, before anything is changed."""
    path, n_done = run_folder.path, len(run_folder.rounds())
    check_format(run_folder, run_folder.ledger().begun)
    if not is_finished(run_folder):
        raise RunError(f"{path} is not finished; finish it with 'fedce run --resume {path}' before it gets more rounds")
    if after.n_rounds <= n_done:
        raise RunError(f"{path} has {n_done} rounds; to train further, --rounds must be above {n_done}")
    if has_stalled([done.mean_score for done in run_folder.rounds()], before.patience):
        raise RunError(
            f"{path} stopped after {n_done} rounds by patience = {before.patience}, so more rounds would stop at once; "
            f"start a new run from its model with --set model.start={path}"
        )
    if not run_folder.state_file.exists():
        raise RunError(f"{run_folder.state_file} is gone, and the rounds can't go on without it")


def _members(run_folder: RunFolder, participants: Participants) -> dict[str, Any]:
    """The members' facts, and who came and went; the data of a member that stays must be as they were."""
    facts = about_run(participants, run_folder)["sites"]
    began = run_folder.ledger().fingerprints
    for site in sorted(began.keys() & facts.keys()):
        if began[site] != facts[site]["fingerprint"]:
            raise RunError(f"site {site!r} has other data than before; restore them, or start a new run")
    _check_model(run_folder, participants)
    joined, left = sorted(facts.keys() - began.keys()), sorted(began.keys() - facts.keys())
    return {"sites": facts, "came_and_went": {"joined": joined, "left": left}}


def _check_model(run_folder: RunFolder, participants: Participants) -> None:
    """The members' images and classes must be those of the run's models."""
    models = [run_folder.model_file, *sorted(run_folder.site_model_file("").parent.glob("*.safetensors"))]
    about = next((read_tensors(file)[1] for file in models if file.exists()), None)
    if about is None:
        return
    if (n_channels := about["shape"][0]) != participants.n_channels:
        raise RunError(
            f"the model takes images of {n_channels} channels, and a new member has {participants.n_channels}; "
            "save its images as the others' are"
        )
    if (known := list(about["classes"])) != (given := list(participants.first.classes)):
        raise RunError(f"the model knows the classes {', '.join(known)}, and the data have {', '.join(given)}")


def _as_known(run_folder: RunFolder) -> dict[str, Any]:
    """Sites on other machines come and go by themselves; the ledger then says so."""
    ledger = run_folder.ledger()
    facts = {site: known.model_dump(mode="json") for site, known in ledger.sites.items()}
    return {"run": ledger.begun.run, "sites": facts, "came_and_went": {}}
