"""A site in its hospital: its images, its key, its memory and its answers. Nothing but the answers leaves it."""

import json
import traceback
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import time

import torch

from fedce import algorithms
from fedce.base.config import Config, with_planned
from fedce.base.errors import ConfigError, DataError, FedceError, RunError
from fedce.base.files import Arrays, append_line, read_json, write_bytes, write_private
from fedce.base.identity import Identity
from fedce.base.tables import BUILT_IN
from fedce.core.messages import Reply, Task
from fedce.core.params import Params, shared_layout
from fedce.core.site import Memory, Site
from fedce.data import SiteData, Sites, load_site
from fedce.data.fingerprint import look_at
from fedce.data.site import with_n_channels
from fedce.learning import networks as models
from fedce.learning.learner import Learner, learner_for
from fedce.learning.metrics import Measures
from fedce.site import attacks
from fedce.site.cases import cases_csv
from fedce.site.hospital import MemoryFiles, member_of, perform
from fedce.site.own import ForItself
from fedce.site.travel import sent_as
from fedce.site.wire import (
    Failure,
    FingerprintForm,
    Hello,
    MemberForm,
    NotHeldError,
    Parcel,
    Signed,
    TaskForm,
    kind_of,
    reply_form,
    task_from,
)

KEY, NEXT_KEY, EARLIER_KEYS = "key.pem", "key-next.pem", "key-before-*.pem"
"""Private keys in a site's folder: its own, the one that it changes to, and earlier ones."""
REFUSES_TO_SCORE = "no-scoring"
"""A file of this name in a site's folder: the site trains, and scores no models on its images for others."""
SENDS_NO_FINGERPRINT = "no-fingerprint"
"""A file of this name in a site's folder: the site takes part, and does not tell what its images are like."""
DRAWN = "audit"
"""In a run's folder at a site: the memories from before rounds that are drawn for an audit."""


def at_hospital(config: Config, site: str, data: str) -> Config:
    """The experiment as a hospital runs it; `data` is its folder, a folder that holds it, or a built-in federation."""
    source = data
    if data not in BUILT_IN:
        path = Path(data).expanduser().resolve()
        whole = site.rpartition(".")[0] if config.data.shards > 1 else site
        if (path / whole).is_dir() or (path / f"client_{whole}.json").is_file():
            source = str(path)
        elif path.name == whole and path.is_dir():
            source = str(path.parent)
        elif not path.is_dir():
            raise DataError(f"{data} is not a folder; name the folder of the site {site!r}, or one that holds it")
        else:
            raise DataError(
                f"{data} is neither the folder of site {site!r} nor holds a folder of this name; call the folder "
                f"of its images and masks {site!r}"
            )
    # The coordinator states a root for the paths in datalists, but for another machine.
    own = config.data.model_copy(update={"source": source, "root": None})
    # A file of weights is on the coordinator's machine: the first task brings the model made from it.
    model = config.model.model_copy(update={"start": None})
    return config.model_copy(update={"data": own, "model": model})


class Resident:
    """Answers hellos and tasks for one site while its process lives; what must survive the process is on its disk."""

    def __init__(self, config: Config, site: str, home: Path, versions: dict[str, str]) -> None:
        self.asked, self.site, self.home, self.versions = config, site, home, versions
        self.identity = Identity.at(home / KEY)
        self._memory: tuple[str, Memory] | None = None
        self._held: tuple[Params, ...] = ()
        """If models travel packed: the last two that were sent."""
        self._planned_for = ""
        self._adopt(config)
        torch.set_num_threads(1)

    def _adopt(self, config: Config) -> None:
        """Work by this experiment from now on."""
        self.config = config
        self.algorithm = algorithms.made_for(config)
        self.measures = Measures.asked_by(config)
        self.wanted = ForItself.asked_by(config, self.algorithm.traits.exchanges)
        self._tools: dict[int, tuple[Learner, Site]] = {}
        self.__dict__.pop("sites", None)

    def _follow_plan(self, run: str, planned: str = "") -> None:
        """If the experiment leaves keys to a plan, take the run's values for them; they are kept for a restart."""
        file = self.home / run / "plan.json"
        if planned and (not file.exists() or file.read_bytes() != planned.encode()):
            write_bytes(file, planned.encode())
            self._planned_for = ""
        if not self.asked.unplanned or self._planned_for == run or not file.exists():
            return
        values = read_json(file)
        if not isinstance(values, dict):
            raise ConfigError(f"{file}: expected the planned values by key")
        self._adopt(with_planned(self.asked, values))
        self._planned_for = run

    @cached_property
    def sites(self) -> Sites:
        """The site's own images."""
        return load_site(self.config.data, self.site)

    @property
    def data(self) -> SiteData:
        only: SiteData = self.sites[0]
        return only

    def answer(self, parcel: Parcel) -> Parcel:
        """The answer to any message; a failure is an answer too."""
        try:
            if kind_of(parcel.about) == "hello":
                hello = Hello.read(parcel.about)
                self._use(hello.key)
                if hello.wants == "fingerprint":
                    return self._fingerprint(hello)
                self._follow_plan(hello.run, hello.planned)
                return self._introduce(hello)
            form = TaskForm.read(parcel.about)
            self._use(form.key)
            self._follow_plan(form.run)
            return self._work(form, parcel.arrays)
        except Exception as error:  # noqa: BLE001 (whatever it was, the server must learn of it, and this site's log)
            self._log("".join(traceback.format_exception(error)).rstrip())
            return self._signed(Failure(site=self.site, what=_told(error)).model_dump_json())

    def _signed(self, content: str, arrays: Arrays | None = None) -> Parcel:
        return Parcel(Signed(content=content, signature=self.identity.sign(content)).model_dump_json(), arrays or {})

    def _use(self, key: str) -> None:
        """Sign with the key that the server names; if it names none, or one that is not here, with key.pem."""
        if key == self.identity.public:
            return
        files = (self.home / KEY, self.home / NEXT_KEY, *sorted(self.home.glob(EARLIER_KEYS)))
        found = {Identity.at(path).public: path for path in files if path.exists()}
        if (path := found.get(key, self.home / KEY)).exists():
            self.identity = Identity.at(path)
        if path.name == NEXT_KEY:  # The new key is in the ledger. Other runs may still know the earlier one.
            self._log(f"signs with its new key {key}")
            own = (self.home / KEY).read_bytes()
            write_private(self.home / EARLIER_KEYS.replace("*", sha256(own).hexdigest()[:8]), own)
            path.replace(self.home / KEY)

    def _fingerprint(self, hello: Hello) -> Parcel:
        """What the site's images are like, in some hundred numbers (docs/privacy.md)."""
        if (self.home / SENDS_NO_FINGERPRINT).exists():
            self._log(f"sends no fingerprint to run {hello.run}: {SENDS_NO_FINGERPRINT} is in its folder")
            told, shape = "", None
        else:
            found = look_at(self.asked.data, site=self.site)
            told, shape = found.sites[0].model_dump_json(), found.shape
            self._log(f"sends its fingerprint to run {hello.run}")
        form = FingerprintForm(
            run=hello.run,
            nonce=hello.nonce,
            name=self.site,
            fingerprint=told,
            shape=shape,
            versions=self.versions,
            key=self.identity.public,
        )
        return self._signed(form.model_dump_json())

    def _introduce(self, hello: Hello) -> Parcel:
        self._log(f"asked by run {hello.run} who is here")
        form = MemberForm(
            **asdict(member_of(self.data, self.sites.classes)),
            run=hello.run,
            nonce=hello.nonce,
            versions=self.versions,
            key=self.identity.public,
        )
        return self._signed(form.model_dump_json())

    def _work(self, form: TaskForm, arrays: Arrays) -> Parcel:
        if form.site != self.site:
            raise ConfigError(f"a task for {form.site!r} came to {self.site!r}")
        if form.n_channels not in self._tools:
            self._tools = {form.n_channels: self._make_tools(form.n_channels)}
        learner, hospital = self._tools[form.n_channels]
        exchanged, pack = shared_layout(learner.layout, self.config.model.stays), self.config.pack
        task = task_from(form, arrays, exchanged, pack, self._held)
        if pack != "none":
            # Two, because the answer to the newest may be lost: the coordinator then still goes by the one before it.
            self._held = (task.params, *self._held)[:2]
        if task.action == "score" and (self.home / REFUSES_TO_SCORE).exists():
            self._log(f"does not score models of others: {REFUSES_TO_SCORE} is in its folder")
            return self._signed(
                reply_form(Reply(self.site, task.round_no, hospital.n_train), form.run, task).model_dump_json()
            )
        files = MemoryFiles(
            self.home / form.run / "memory", learner.layout, self.algorithm.keeps, drawn=self.home / form.run / DRAWN
        )
        memory = self._latest(form.run, files) if task.action == "score" else self._recall(form.run, task, files)
        files.keep(task.drawn, memory)
        reply, memory = perform(self.algorithm, hospital, task, memory, learner.initial, self.wanted, pack)
        reply = attacks.said(reply, self.config.freerider.plant.get(self.site))
        if task.action == "train" and memory is not None:
            if task.persist:
                files.save(memory)
            self._memory = (form.run, memory)
        self._record(form.run, task, reply.score)
        if reply.evaluation is not None and reply.evaluation.cases:
            write_bytes(self.home / form.run / "cases.csv", cases_csv({self.site: reply.evaluation.cases}))
        sent = {} if reply.params is None else {"params": sent_as(reply.params, pack, task.params)}
        return self._signed(reply_form(reply, form.run, task).model_dump_json(), sent)

    def _recall(self, run: str, task: Task, files: MemoryFiles) -> Memory | None:
        if self._memory and self._memory[0] == run and self._memory[1].round_no < task.round_no:
            return self._memory[1]
        # If a round is asked for again, the first answer was lost: what it left behind must not count.
        return files.load(before=task.round_no)

    def _latest(self, run: str, files: MemoryFiles) -> Memory | None:
        """The site's current memory. Models of others are scored during a round, whose memory must stay."""
        return self._memory[1] if self._memory and self._memory[0] == run else files.newest()

    def _make_tools(self, n_channels: int) -> tuple[Learner, Site]:
        config, classes = self.config, tuple(self.sites.classes)
        device = models.choose_device(config.engine.device)
        learner = learner_for(config, n_channels, len(classes), device)
        data = with_n_channels(self.data, n_channels)
        hospital = attacks.hospital(
            [data], self.site, learner, classes, config.seed, config.freerider.plant, self.measures
        )
        return learner, hospital

    def _record(self, run: str, task: Task, score: float | None) -> None:
        """Record what the site was sent, for its own use."""
        told = {"time": time(), "round": task.round_no, "action": task.action, "weight": task.rho, "score": score}
        (self.home / run).mkdir(exist_ok=True)
        append_line(self.home / run / "rounds.jsonl", json.dumps({**told, "shares": dict(task.shares)}))

    def _log(self, text: str) -> None:
        with suppress(RunError):  # With a full disk, the answer is still sent.
            append_line(self.home / "site.log", f"{time():.0f} {text}")


def _told(error: Exception) -> str:
    """What the server may know of an error: its text may name files or patients, so the text stays here."""
    if isinstance(error, NotHeldError):
        return "it no longer has the model that this one is a difference to, and gets the whole one"
    what = "its data can't be used" if isinstance(error, DataError) else type(error).__name__
    fault = "" if isinstance(error, FedceError) else "a fault of the program, "
    return f"{fault}{what}; see site.log in the site's own folder"
