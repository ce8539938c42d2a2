"""What a session writes to the ledger."""

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import Any

from fedce.algorithms.reconstruction import reconstructed_values
from fedce.base.config import Config
from fedce.base.files import digest_of, write_json
from fedce.base.tables import WorthConfig
from fedce.core.algorithm import State
from fedce.core.ballot import Ballot
from fedce.core.best import best_round
from fedce.core.messages import Reply
from fedce.core.params import Params
from fedce.core.recorded import Flag
from fedce.data import Sites
from fedce.data.splits import NAMES
from fedce.federation.loop import Round, missing_of
from fedce.federation.plan import Plan
from fedce.guard.verdicts import flags_by_guard
from fedce.learning.pretrained import file_of
from fedce.record.attendance import NO_REPLY
from fedce.record.folder import RunFolder
from fedce.record.ledger import FORMAT
from fedce.valuation.worth import RULE


def round_line(done: Round, members: Iterable[str], leave_out: Sequence[str]) -> dict[str, Any]:
    state = done.state
    sites = {
        site: {
            "n_train": reply.n_train,
            "weight": state.rho.get(site, 0.0),
            "share": state.shares.get(site, 0.0),
            "score": reply.score,
            "loss": reply.loss,
            **_own_words(reply),
            **_detector_facts(done, reply),
            "cos": None,
            "err": reply.error_without,
            **state.measured.get(site, {}),
            # Rounded, because an interval needs no more digits; the terms themselves are kept to the last bit.
            "err_replicates": [round(error, 5) for error in reply.error_replicates],
            # The ledger holds the words of a flag, for people; entries.SiteFacts reads them back.
            "flags": [flag.text for flag in _flags(done, site)],
            **({"statistics_harm": done.harms[site]} if site in done.harms else {}),
            **({"statistics_distance": done.far[site]} if site in done.far else {}),
            "seconds": round(reply.seconds, 3),
            **({"signed": dict(reply.signed)} if reply.signed else {}),
        }
        for site, reply in done.replies.items()
    }
    return {
        "kind": "round",
        "round": done.round_no,
        "time": time(),
        "seconds": round(done.seconds, 3),
        "mean_score": done.mean_score,
        "n_models": done.n_models,
        "asked": list(done.asked),
        **({"absent": list(done.absent)} if done.state.draws else {}),
        **({"sketch": done.sketches[""]} if done.sketches else {}),
        "sites": sites,
        "rejected": dict(done.rejected),
        "missing": missing_of(done, members, leave_out),
        **({"ballot": _ballot(done.ballot)} if done.ballot else {}),
        **({"drawn": dict(done.drawn)} if done.drawn is not None else {}),
        "notes": list(state.notes),
    }


def _ballot(held: Ballot) -> dict[str, Any]:
    signed = {site: [dict(answer) for answer in answers] for site, answers in held.signed.items()}
    scores = {site: list(own) for site, own in held.scores.items()}
    found = {"without": list(held.without), "scores": scores, "carried": dict(held.carried)}
    hidden = {"decoy": dict(held.decoy), "secret": held.secret} if held.decoy else {}
    silent = {"no_vote": dict(held.no_vote)} if held.no_vote else {}
    return {**found, **hidden, **silent, **({"signed": signed} if signed else {})}


def digests_of(run_folder: RunFolder, replies: Mapping[str, Reply]) -> dict[str, str]:
    """Digests of the files that belong to the end: models, single cases and examples."""
    files = [
        run_folder.model_file,
        run_folder.best_file,
        *map(run_folder.site_model_file, replies),
        run_folder.examples_file,
        run_folder.cases_file,
    ]
    return {str(file.relative_to(run_folder.path)): digest_of(file) for file in files if file.exists()}


def end_line(
    plan: Plan, state: State, replies: Mapping[str, Reply], rejected: Mapping[str, str], gone: Mapping[str, str]
) -> dict[str, Any]:
    """What the sites said of the final model, and everything else that results follow from."""
    return {
        "kind": "end",
        "time": time(),
        "model": _model_digest(plan, state, replies),
        **({} if best_model(state, replies) is None else {"best_round": best_round(all_scores(state, replies))}),
        "shares": dict(state.shares),
        "evaluations": {
            site: {**reply.evaluation.entry, **({"signed": dict(reply.signed)} if reply.signed else {})}
            for site, reply in replies.items()
            if reply.evaluation
        },
        **({"metrics": plan.measures.headings} if plan.measures.metrics else {}),
        "rejected": dict(rejected),
        "missing": {
            site: gone.get(site, NO_REPLY) for site in sorted(plan.members.keys() - replies.keys() - rejected.keys())
        },
        **reconstructed_values(state),
        "exchanges": plan.algorithm.traits.exchanges,
        "n_parameters": plan.whole_layout.n_trainable,
        "n_values": plan.layout.size,
        "device": str(plan.learner.device),
    }


def _flags(done: Round, site: str) -> list[Flag]:
    """Flags for a reader, from the border or from the guard; each once."""
    by_guard = flags_by_guard(done.state.measured.get(site, {}))
    return list(dict.fromkeys([*done.flags.get(site, ()), *by_guard]))


def _own_words(reply: Reply) -> dict[str, Any]:
    """What only some methods ask a site for."""
    told = {"score_local": reply.score_local, "loss_before": reply.loss_before}
    return {name: value for name, value in told.items() if value is not None}


def _detector_facts(done: Round, reply: Reply) -> dict[str, Any]:
    """What the free-rider detector needs of a site; empty if the detector is off."""
    if reply.site not in done.similarity:
        return {}
    return {
        "score_local": reply.score_local,
        "similarity": done.similarity[reply.site],
        "similarity_global": done.similarity_global[reply.site],
        "sketch": done.sketches[reply.site],
    }


def write_splits(file: Path, sites: Sites) -> dict[str, str]:
    """Write splits.json; returns its digest for the start's line."""
    write_json(file, _splits(sites))
    return {"splits": digest_of(file)}


def _splits(sites: Sites) -> dict[str, dict[str, list[str]]]:
    return {data.name: {part: [data.files[i] for i in getattr(data.split, part)] for part in NAMES} for data in sites}


def about_run(plan: Plan, run_folder: RunFolder) -> dict[str, Any]:
    sites = {
        name: {
            "n_train": member.n_train,
            "n_validation": member.n_validation,
            "n_test": member.n_test,
            "n_train_cases": member.n_train_cases,
            "n_validation_cases": member.n_validation_cases,
            "n_test_cases": member.n_test_cases,
            "fingerprint": member.fingerprint,
        }
        for name, member in plan.members.items()
    }
    return {
        "format": FORMAT,
        "versions": versions(),
        "config": config_digest(plan.config),
        # A later check of the ledger reads the experiment from this file.
        "config_file": digest_of(run_folder.config_file),
        # What the run started from follows from the experiment and, if there is one, from this file.
        **({"weights": digest_of(file_of(Path(start)))} if (start := plan.config.model.start) else {}),
        # Empty if what each site gives to the others is measured; otherwise why it is not.
        "no_worth": plan.no_worth,
        "worth_rule": RULE,
        # The paper's arithmetic knows no presence.
        "presence": plan.config.guard != "off",
        "sites": sites,
    }


def config_digest(config: Config) -> str:
    return sha256(_decisive(config).encode()).hexdigest()


def _decisive(config: Config) -> str:
    """Digest of what may not change between a start and a resume: everything but the engine and the trackers.

    Keys that came later count only if they are set, so that runs of earlier versions can still be resumed.
    """
    exclude: dict[str, Any] = {"engine": True, "tracking": True}
    for key, default in LATER.items():
        table, _, name = key.rpartition(".")
        if getattr(getattr(config, table) if table else config, name) == default:
            exclude |= {table: {*exclude.get(table, set()), name}} if table else {name: True}
    return config.model_dump_json(exclude=exclude)


LATER: Mapping[str, Any] = {
    "recipe": "small",
    "metrics": ("dice",),
    "surface_tolerance": 1.0,
    "pack": "none",
    "alone": False,
    "personalise": 0,
    "train.schedule": "constant",
    "model.start": None,
    "patience": None,
    "audit": 0.05,
    "unplanned": (),
    "worth": WorthConfig(),
    "data.site_pattern": None,
    "data.site_column": None,
    "data.fold": 0,
    "data.colors": None,
    "data.labelled": {},
    "data.dims": 2,
    "data.spacing": None,
    "data.patch": None,
    "data.overlap": 0.25,
    "train.class_weights": (),
    "train.patches": 2,
    "train.foreground": 1 / 3,
    "train.amp": "off",
    "train.clip": 0.0,
}
"""Keys that experiments did not have when format 4 began, with the values that they implied then."""


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("fedce", "torch", "monai", "numpy")}
    return {**packages, "python": platform.python_version(), "platform": f"{sys.platform} {platform.machine()}"}


def _model_digest(plan: Plan, state: State, replies: Mapping[str, Reply]) -> str:
    """Digest of the common model, or of all sites' own models together."""
    if not plan.personal:
        return state.params.digest
    own = "".join(reply.params.digest for _, reply in sorted(replies.items()) if reply.params is not None)
    return sha256(own.encode()).hexdigest()


def all_scores(state: State, replies: Mapping[str, Reply]) -> list[float]:
    """The mean validation score of each round's first model, and of the last model."""
    last = [reply.evaluation.validation_dice for reply in replies.values() if reply.evaluation]
    return [*state.scores, sum(last) / len(last)]


def best_model(state: State, replies: Mapping[str, Reply]) -> Params | None:
    """The model of the best round, perhaps the last one; None where sites have no common model, or no round ran."""
    if state.best is None:
        return None
    return state.params if best_round(all_scores(state, replies)) == len(state.scores) else state.best
