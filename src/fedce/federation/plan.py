"""What the server knows of an experiment, and all of its sites if they are on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedce import algorithms
from fedce.base.code import code_in
from fedce.base.config import Config
from fedce.base.errors import ConfigError, FedceError, nearest
from fedce.base.identity import coordinator
from fedce.base.tables import BUILT_IN
from fedce.core.algorithm import Algorithm, State
from fedce.core.ballot import FEWEST_SITES, SET_REFERENCE, Ballots
from fedce.core.decoys import Drawn, secret_text
from fedce.core.messages import Member, Reply, Task
from fedce.core.params import Layout, Params, part_of, shared_layout
from fedce.core.site import Memory
from fedce.core.site import Site as LocalSite
from fedce.data import Sites
from fedce.data.shape import patch_of
from fedce.federation.reference import Reference, reference_images
from fedce.guard.border import Limits
from fedce.learning import networks
from fedce.learning.learner import Learner, learner_for
from fedce.learning.losses import check_weights, loss_path
from fedce.learning.metrics import Measures, metric_path
from fedce.learning.pretrained import start_from
from fedce.site import attacks
from fedce.site.hospital import member_of, perform
from fedce.site.own import ForItself
from fedce.tracking import absolute


class Plan:
    """What the server knows: the experiment, and what the sites said of themselves."""

    device: str | None = None
    """The device of this process, if it is not simply that of engine.device."""

    def __init__(self, config: Config, members: Mapping[str, Member]) -> None:
        self.config = config
        self.members = dict(members)
        self.algorithm: Algorithm = algorithms.made_for(config)
        self.measures = Measures.asked_by(config)
        self.wanted = ForItself.asked_by(config, self.algorithm.traits.exchanges)
        if config.engine.min_sites > len(members):
            raise ConfigError(f"engine.min_sites is {config.engine.min_sites}, but there are only {len(members)} sites")
        if config.sites_per_round is not None:
            _check_draw(config, self.algorithm)
        if self.algorithm.traits.sites_claim_novelty and config.model.stays == "norms":
            raise ConfigError(
                "model.norm = 'site-affine': with estimate='site' a site measures its own novelty by the common "
                "update, which has no scale and shift then; set model.norm to site, or estimate to server"
            )
        for member in members.values():
            check_weights(config.train.class_weights, tuple(member.classes), member.scored, member.name)
        for kind in config.freerider.plant.values():
            attacks.attack_of(kind)
        for site in (*config.leave_out, *config.freerider.plant, *config.worth.scorers):
            if site not in members:
                known = f"{nearest(site, members)}; there are: {', '.join(members)}"
                raise ConfigError(f"no site is called {site!r}{known}")
        _check_scorers(config)

    @property
    def first(self) -> Member:
        """The first member, for what all have in common: the size of images and the classes."""
        return next(iter(self.members.values()))

    @cached_property
    def n_channels(self) -> int:
        """Channels of the network's input; grey sites among colour ones repeat their channel."""
        return max(member.shape[0] for member in self.members.values())

    @cached_property
    def learner(self) -> Learner:
        """Built once in the parent process; forked workers inherit it."""
        device = networks.choose_device(self.device or self.config.engine.device)
        return learner_for(self.config, self.n_channels, len(self.first.classes), device, self.spatial)

    @property
    def spatial(self) -> tuple[int, ...]:
        """The size of what the network sees: height and width, or a patch's slices, rows and columns."""
        return patch_of(self.config.data) or self.first.shape[1:]

    @property
    def whole_layout(self) -> Layout:
        """The layout of the network as a site has it."""
        return self.learner.layout

    @cached_property
    def layout(self) -> Layout:
        """The layout of what is exchanged of the network; the rest stays at the sites."""
        shared = shared_layout(self.whole_layout, self.config.model.stays)
        if self.config.model.stays != "nothing" and shared == self.whole_layout:
            what = "batch norm" if self.config.model.norm == "site" else "normalisation layer with values to keep"
            raise ConfigError(
                f"model.norm = {self.config.model.norm!r}: the network {self.config.model.name} has no {what}; "
                "set model.norm to batch, instance or group, which leave such a network as it is"
            )
        return shared

    @property
    def personal(self) -> bool:
        """Whether each site ends with a model of its own."""
        return self.algorithm.traits.personal or self.config.model.stays != "nothing" or self.wanted.personalise > 0

    @property
    def keeps(self) -> type | None:
        return self.algorithm.keeps

    @property
    def detects(self) -> bool:
        """Whether free riders are looked for; if no models are exchanged, there is nothing to look at."""
        return self.config.freerider.detect and self.algorithm.traits.exchanges

    @property
    def limits(self) -> Limits | None:
        """What the guard checks in the models that arrive; None if it is off."""
        if self.config.guard == "off":
            return None
        # If every site ends with its own model, nobody uses the common running statistics.
        return Limits(self.config.max_length, statistics=not self.personal)

    @property
    def no_worth(self) -> str:
        """Why it can't be measured what each site gives to the others, or is not wanted; empty: it is measured."""
        wanted, traits = self.config.worth, self.algorithm.traits
        n_sites = len(self.members.keys() - set(self.config.leave_out))
        if wanted.every == 0:
            return "worth.every is 0"
        if traits.personal or not traits.exchanges or not traits.is_mean:
            return f"the common model of {self.config.algorithm.name} is not a mean of the sites' models"
        if wanted.reference is not None:
            return ""
        drawn = self.config.sites_per_round
        too_few = f"below {FEWEST_SITES} a vote can't be held against the other votes"
        if n_sites < FEWEST_SITES:
            return f"{n_sites} sites take part, and {too_few}; {SET_REFERENCE}"
        if drawn is not None and drawn < FEWEST_SITES:
            return f"sites_per_round is {drawn}, and {too_few}; set it to at least {FEWEST_SITES}, or {SET_REFERENCE}"
        return ""

    @property
    def ballots(self) -> Ballots | None:
        return None if self.no_worth else Ballots.asked_by(self.config)

    def n_cases(self, site: str) -> int:
        """Validation cases that a site joined with; 0 if not known, as of a planted site that has another's images."""
        kind = self.config.freerider.plant.get(site)
        if site not in self.members or (kind and attacks.attack_of(kind).has_images_of_another):
            return 0
        return self.members[site].n_validation_cases

    @cached_property
    def secret(self) -> str:
        """What decoys are drawn from: the coordinator's signature, which no site can make; without a key, the seed."""
        text = secret_text(self.config.seed)
        try:
            return coordinator().sign(text)
        except FedceError:
            return text

    @cached_property
    def judge(self) -> Reference | None:
        """The coordinator's reference set, if models are scored on one."""
        if self.no_worth or self.config.worth.reference is None:
            return None
        images = reference_images(self.config, (self.n_channels, *self.first.shape[1:]), self.first.classes)
        return Reference(images, self.learner, tuple(self.first.classes))

    def initial_state(self) -> State:
        _ = self.judge  # Refused now, if at all: before a run folder is made.
        members = sorted(self.members.keys() - set(self.config.leave_out))
        return self.algorithm.begin(members, self.first_model)

    @cached_property
    def first_model(self) -> Params:
        """The common model before the first round."""
        built = part_of(self.learner.initial, self.layout)
        return start_from(built, Path(self.config.model.start))[0] if self.config.model.start else built


def _check_scorers(config: Config) -> None:
    named = config.worth.scorers
    if not named:
        return
    if config.worth.reference is not None:
        raise ConfigError("worth.scorers has no use with worth.reference, on which nobody votes; remove one of them")
    scorers = set(named) - set(config.leave_out)
    if len(scorers) < FEWEST_SITES:
        beside = " that take part" if len(scorers) < len(set(named)) else ""
        raise ConfigError(
            f"worth.scorers names {len(scorers)} sites{beside}, and at least {FEWEST_SITES} must score, so that votes "
            "can be held against each other; name more, or set worth.reference instead"
        )


def _check_draw(config: Config, algorithm: Algorithm) -> None:
    assert config.sites_per_round is not None
    if algorithm.traits.sites_claim_novelty:
        raise ConfigError(
            "sites_per_round: with estimate='site' a site measures its own novelty by the model of the next round, "
            "which it does not get if it is not drawn; use estimate='server'"
        )
    if config.freerider.detect:
        raise ConfigError(
            "sites_per_round: freerider.detect compares what a site says in one round and in the next; use one of them"
        )
    if config.sites_per_round < config.engine.min_sites:
        raise ConfigError(
            f"sites_per_round is {config.sites_per_round}, and engine.min_sites {config.engine.min_sites}"
        )


@dataclass(frozen=True)
class Played:
    """What a site did with a task."""

    task: Task
    reply: Reply
    memory: Memory | None

    def is_of(self, task: Task) -> bool:
        """Whether the site would do exactly the same with another task."""
        same = replace(self.task, params=task.params, persist=task.persist, shares=task.shares)
        return task == same and np.array_equal(task.params.vector, self.task.params.vector)


FirstRound = dict[str, Played]


class Participants(Plan):
    """All sites of an experiment on this machine, ready to work in any process."""

    def __init__(self, config: Config, sites: Sites, first_round: FirstRound | None = None) -> None:
        super().__init__(config, {data.name: member_of(data, sites.classes) for data in sites})
        self.sites = sites
        self.first_round = first_round or {}
        self.work_by_site = {data.name: len(data.images) for data in sites}
        self._hospitals: dict[str, LocalSite] = {}

    def hospital(self, site: str) -> LocalSite:
        if site not in self._hospitals:
            config, classes = self.config, tuple(self.sites.classes)
            self._hospitals[site] = attacks.hospital(
                self.sites, site, self.learner, classes, config.seed, config.freerider.plant, self.measures
            )
        return self._hospitals[site]

    def perform(self, task: Task, memory: Memory | None) -> tuple[Reply, Memory | None]:
        """Let the task's site carry it out."""
        if known := self.first_round.get(task.site):
            if known.is_of(task):
                return known.reply, known.memory
            del self.first_round[task.site]
        reply, memory = perform(
            self.algorithm,
            self.hospital(task.site),
            task,
            memory,
            self.learner.initial,
            self.wanted,
            self.config.pack,
        )
        plant = self.config.freerider.plant
        if (kind := plant.get(task.site)) is None:
            return reply, memory
        # A planted cheat knows all that any scorer could find out: which model lacks whom. Only the decoy is hidden.
        there = sorted(site for site in self.members if site not in self.config.leave_out)
        order = Drawn.of(self.secret, task.round_no, dict.fromkeys(there, 0.0)).order
        return attacks.said(reply, kind, there, order, plant), memory

    def is_there(self, task: Task) -> bool:
        """Whether the task's site answers; a planted cheat may stay away."""
        return attacks.is_there(task, self.config.n_rounds, self.config.freerider.plant)

    def play_first_round(self) -> FirstRound:
        """What each site does in the first round; it does not depend on the other sites."""
        tasks = [replace(task, score_local=self.detects) for task in self._first_tasks()]
        return {task.site: Played(task, *self.perform(task, None)) for task in tasks}

    def _first_tasks(self) -> list[Task]:
        state = self.initial_state()
        return [self.algorithm.task(state, site) for site in state.sites]

    def device_of(self, worker: int, n_workers: int) -> str:
        """The device that a worker process uses: several GPUs are shared out."""
        asked = self.config.engine.device
        return networks.shared_out(n_workers, asked, torch.cuda.device_count())[worker]

    def __getstate__(self) -> dict[str, Any]:
        """The state for spawned workers, which build their own network."""
        kept = {key: value for key, value in self.__dict__.items() if key not in ("learner", "judge")}
        return {**kept, "_hospitals": {}}


def resolve(config: Config) -> Config:
    """The configuration with the algorithm's own defaults filled in; an unknown option or metric is refused."""
    config = with_paths(config)
    Measures.asked_by(config)
    algorithm = algorithms.make(config.algorithm.name, config.algorithm.options)
    if isinstance(algorithm, algorithms.QFedAvg) and algorithm.local_lr is None:
        algorithm = algorithms.make(config.algorithm.name, {**config.algorithm.options, "local_lr": config.train.lr})
    if algorithm.traits.keeps_norms and config.model.norm not in ("batch", "site", "site-affine"):
        raise ConfigError(
            f"{config.algorithm.name} keeps normalisation layers at the sites; leave out model.norm = "
            f"{config.model.norm!r}, or take fedavg"
        )
    table = config.algorithm.model_validate({"name": config.algorithm.name, **algorithms.settings_of(algorithm)})
    data = config.data
    if data.source not in BUILT_IN:  # An absolute path, so that the run can be resumed from any folder.
        root = str(Path(data.root).resolve()) if data.root else None
        data = data.model_copy(update={"source": str(Path(data.source).resolve()), "root": root})
    norm = "site-affine" if algorithm.traits.keeps_norms else config.model.norm
    start = str(Path(config.model.start).expanduser().resolve()) if config.model.start else None
    model = config.model.model_copy(update={"norm": norm, "start": start})
    reference = str(Path(config.worth.reference).resolve()) if config.worth.reference else None
    worth = config.worth.model_copy(update={"reference": reference})
    tables = {"algorithm": table, "data": data, "model": model, "worth": worth}
    return config.model_copy(update={**tables, "tracking": absolute(config.tracking)})


def with_paths(config: Config) -> Config:
    """The configuration with import paths for everything that is not built in, so that anybody sees which code runs."""
    plant = {site: attacks.attack_path(kind) for site, kind in config.freerider.plant.items()}
    return config.model_copy(
        update={
            "algorithm": config.algorithm.model_copy(update={"name": algorithms.path_of(config.algorithm.name)}),
            "model": config.model.model_copy(update={"name": networks.network_path(config.model.name)}),
            "train": config.train.model_copy(update={"loss": loss_path(config.train.loss)}),
            "freerider": config.freerider.model_copy(update={"plant": plant}),
            "metrics": tuple(map(metric_path, config.metrics)),
        }
    )


def code_of(config: Config) -> dict[str, str]:
    """Keys that name somebody's own Python code, by its path or by a name that an installed package registers."""
    return code_in(with_paths(config))
