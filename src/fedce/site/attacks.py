"""Sites that cheat, planted in a federation to try the detector and the guard on (docs/trust.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedce.base.errors import ConfigError
from fedce.base.ranges import SCORE
from fedce.base.registry import find, full_name
from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.params import Params
from fedce.core.site import Compared, Moments, Pull, Site, Trained
from fedce.data import SiteData
from fedce.data.splits import Split
from fedce.learning.learner import Learner
from fedce.learning.metrics import DICE_ALONE, Measures
from fedce.site import lies
from fedce.site.hospital import Hospital, round_seed

NOISE = 1e-3
"""Standard deviation of a noise update; about as much as a small network's weights move in a round."""
SCALE = 10.0
SPREAD = 4.5
"""Factor on the trained running variances."""
SHIFT = 2.5
"""Shift of the trained running means, in standard deviations."""
LATE = 15
"""From this round on, a site sends longer updates."""
DILATED = 3
"""Pixels by which masks grow."""
TURN = 0.05
"""Part of a right angle by which a site turns away in a round."""


def hospital(
    sites: Sequence[SiteData],
    name: str,
    learner: Learner,
    classes: tuple[str, ...],
    seed: int,
    plant: Mapping[str, str],
    measures: Measures = DICE_ALONE,
) -> Site:
    """The site of this name, or the impostor that is planted in its place."""
    data = next(data for data in sites if data.name == name)
    kind = plant.get(name)
    if kind is None:
        return Hospital(data, learner, classes, seed, measures)
    attack = attack_of(kind)
    if attack.is_of_one_hospital:
        first = min(other for other, its in plant.items() if its == kind)
        data = next((other for other in sites if other.name == first), None) or _not_here(kind, first)
        data = replace(data, name=name) if attack.trains_anew else data
    elif attack.clones:
        victim = next(other for other in sites if other.name not in plant)
        data = replace(victim, name=name)
    elif attack.data is not None:
        data = attack.data(data)
    return Impostor(Hospital(data, learner, classes, seed, measures), kind, name, _sign_of(name, plant))


def _not_here(kind: str, first: str) -> SiteData:
    raise ConfigError(f"freerider.plant: {kind!r} needs the images of {first}; it is for the local engine")


def _sign_of(name: str, plant: Mapping[str, str]) -> int:
    """Colluders come in pairs: every second one mirrors the one before."""
    return -1 if _place(name, plant) % 2 else 1


def _place(name: str, plant: Mapping[str, str]) -> int:
    """The site's number among those that do the same."""
    return sorted(site for site, kind in plant.items() if kind == plant[name]).index(name)


def is_there(task: Task, n_rounds: int, plant: Mapping[str, str]) -> bool:
    """Whether the task's site answers; most cheats do."""
    kind = plant.get(task.site)
    there = attack_of(kind).there if kind else None
    if there is None or task.action != "train":
        return True
    return there(task, n_rounds, _place(task.site, plant))


def with_one_image(data: SiteData) -> SiteData:
    """The paper's free rider: a site that has one image and repeats it. Its test images stay, to measure the damage."""
    n_train = data.n_by_part["train"]
    n_copies = n_train + data.n_by_part["validation"]
    # One image, or all slices of one volume.
    one = data.stacks(data.split.train)[0].rows if data.patch else data.split.train[:1]
    n = len(one)
    rows = np.concatenate([np.tile(one, n_copies), data.split.test])
    # Every copy counts as an image of its own case.
    copies = tuple(f"copy {i // n}" for i in range(n * n_copies))
    origins = [data.origins[row] for row in rows] if data.origins else []
    ends = np.cumsum([n * n_train, n * (n_copies - n_train), len(data.split.test)])
    return replace(
        data,
        images=data.images[rows],
        masks=data.masks[rows],
        files=(*copies, *(data.files[row] for row in data.split.test)),
        cases=(*copies, *(data.cases[row] for row in data.split.test)),
        split=Split(*(np.arange(start, end) for start, end in zip((0, *ends), ends, strict=False))),
        origins=tuple(replace(one, item=-1 - i // n) if i < ends[1] else one for i, one in enumerate(origins)),
    )


def with_inverted_labels(data: SiteData) -> SiteData:
    """Background as foreground, in training and validation. The test images stay, to measure the damage."""
    return _with_own(data, masks=1 - data.masks)


class Impostor:
    """A site that sends something other than what it trained or found, and is honest otherwise."""

    def __init__(self, site: Site, kind: str, name: str | None = None, sign: int = 1) -> None:
        self.site, self.attack, self.sign = site, attack_of(kind), sign
        self.name = name or site.name

    @property
    def n_train(self) -> int:
        return self.site.n_train

    def loss(self, params: Params) -> float:
        return self.site.loss(params)

    def score(self, params: Params) -> float:
        return self.site.score(params)

    def scores(self, models: Sequence[Params]) -> tuple[float, ...]:
        return self.site.scores(models)

    def score_replicates(self, params: Params) -> tuple[float, ...]:
        return self.site.score_replicates(params)

    def evaluate(self, params: Params, without: Params | None) -> Evaluation:
        return self.site.evaluate(params, without)

    def test_dice(self, params: Params) -> float:
        return self.site.test_dice(params)

    def compare(self, params: Params, other: Params | None) -> Compared:
        return self.site.compare(params, other)

    def adapted(self, params: Params) -> Params:
        return self.site.adapted(params)

    def train(self, params: Params, round_no: int, moments: Moments, pull: Pull | None = None) -> Trained:
        if self.attack.sends is None:
            return self.site.train(params, round_no, moments, pull)
        return self.attack.sends(self, params, round_no, moments, pull)


Sends = Callable[[Impostor, Params, int, Moments, Pull | None], Trained]
"""What an impostor trains, or makes up, in a round."""


@dataclass(frozen=True)
class Attack:
    """How an impostor cheats; in everything that is left out here it is honest."""

    words: str
    sends: Sends | None = None
    data: Callable[[SiteData], SiteData] | None = None
    """Changes its images before anything else."""
    says: Callable[[Reply], Reply] | None = None
    """Changes its answer."""
    votes: Callable[[Sequence[float], Sequence[int]], Sequence[float]] | None = None
    """Changes its scores of the common model, of the models without a site and of the decoy, which it takes for another
    of these; it knows which of them lack an accomplice or itself."""
    there: Callable[[Task, int, int], bool] | None = None
    """Whether it does a round's task: by the task, the number of rounds and its place among accomplices."""
    clones: bool = False
    """It has the images of the first honest site, which does not know."""
    is_paired: bool = False
    """Several members do it together."""
    is_of_one_hospital: bool = False
    """All members that do it have the images of the first of them."""
    trains_anew: bool = False
    """Each of these members trains on the images by itself."""

    @property
    def has_images_of_another(self) -> bool:
        return self.is_of_one_hospital or self.clones


def attack_of(kind: str) -> Attack:
    """The attack of this name, or your own at package.module:NAME."""
    return find(kind, ATTACKS, Attack, "fedce.attacks", "freerider.plant")


def attack_path(kind: str) -> str:
    """The name, or the import path of an attack from an installed package (entry point fedce.attacks)."""
    return full_name(kind, ATTACKS, "fedce.attacks")


def _changed(change: Callable[[Params, Params], Params]) -> Sends:
    """Sends a changed model; `change` gets the model that the impostor received, and the one that it trained."""

    def send(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
        honest = own.site.train(params, round_no, moments, pull)
        return replace(honest, params=change(params, honest.params))

    return send


def _times(factor: float) -> Sends:
    return _changed(lambda start, trained: _moved(start, factor * (trained.trainable - start.trainable)))


def _zero(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    return Trained(params, own.site.loss(params), {})


def _sends_noise(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    return Trained(_moved(params, _noise(params, own.name, round_no)), own.site.loss(params), {})


def _invents(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """A constant direction looks trained; a part of the last common step looks related."""
    held, wobble = _noise(params, own.name, -1), _noise(params, own.name, round_no)
    step = params.trainable - moments.get("last", params.trainable)
    part = 0.3 * np.linalg.norm(held) / max(float(np.linalg.norm(step)), 1e-12)
    kept = {"last": params.trainable.copy()}
    return Trained(_moved(params, held + 0.1 * wobble + part * step), own.site.loss(params), kept)


def _colludes(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """Noise with opposite signs: both sites look new, and the mean model does not move."""
    return Trained(_moved(params, own.sign * _noise(params, "pair", round_no)), own.site.loss(params), {})


def _echoes(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """The model that it sends back is old: all other sites have moved on since."""
    last = moments.get("last", params.vector)
    return Trained(Params(params.layout, np.array(last)), own.site.loss(params), {"last": params.vector.copy()})


def _replays(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    if "update" in moments:
        return Trained(_moved(params, moments["update"]), own.site.loss(params), moments)
    honest = own.site.train(params, round_no, {}, pull)
    return replace(honest, moments={"update": honest.params.trainable - params.trainable})


def said(
    reply: Reply,
    kind: str | None,
    sites: Sequence[str] = (),
    order: Sequence[int] = (),
    plant: Mapping[str, str] | None = None,
) -> Reply:
    """The answer of a site that does this.

    `order` says which model came at which place of a ballot: 0 is the common model, then those without each of the
    sites, last the decoy. A cheat who knows it still can't know the decoy: to the cheat it lacks an honest site.
    """
    if kind is None:
        return reply
    attack = attack_of(kind)
    if attack.votes is not None and reply.scores and len(reply.scores) == len(order):
        mine = [i for i, site in enumerate(sites, 1) if (plant or {}).get(site) == kind]
        places = [order.index(i) for i in range(len(order))]
        votes = attack.votes([reply.scores[place] for place in places], mine)
        lies = tuple(SCORE.nearest(votes[i]) for i in order)
        reply = replace(reply, scores=lies)
    return reply if attack.says is None else attack.says(reply)


def _drifts(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """An honest update and a held made-up direction of the same length; an accomplice adds its opposite."""
    honest = own.site.train(params, round_no, moments, pull)
    update = honest.params.trainable - params.trainable
    held = _noise(params, "held", -1)
    return replace(honest, params=_moved(params, update + own.sign * _as_long(held, update)))


def _rotates(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    """Turns away from its honest update a little more in every round."""
    honest = own.site.train(params, round_no, moments, pull)
    update = honest.params.trainable - params.trainable
    angle = min(TURN * round_no, 1.0) * np.pi / 2
    turned = np.cos(angle) * update + np.sin(angle) * _as_long(_noise(params, own.name, -1), update)
    return replace(honest, params=_moved(params, turned))


def _as_long(direction: NDArray[np.float64], update: NDArray[np.floating]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = direction * (np.linalg.norm(update) / np.linalg.norm(direction))
    return found


def _longer_late(own: Impostor, params: Params, round_no: int, moments: Moments, pull: Pull | None) -> Trained:
    return _times(3.0 if round_no >= LATE else 1.0)(own, params, round_no, moments, pull)


def _with_dilated_masks(data: SiteData) -> SiteData:
    """Masks in training and validation grow by some pixels."""
    from scipy.ndimage import grey_dilation

    return _with_own(data, masks=grey_dilation(data.masks, (1, 1, 2 * DILATED + 1, 2 * DILATED + 1)))


def _with_inverted_images(data: SiteData) -> SiteData:
    return _with_own(data, images=data.images.max() - data.images)


def _with_own(
    data: SiteData, images: NDArray[np.uint8] | None = None, masks: NDArray[np.uint8] | None = None
) -> SiteData:
    """The site with other images or masks; those of the test split stay, to measure the damage."""
    images, masks = data.images.copy() if images is None else images, data.masks.copy() if masks is None else masks
    test = data.split.test
    images[test], masks[test] = data.images[test], data.masks[test]
    return replace(data, images=images, masks=masks)


def _spread(start: Params, trained: Params) -> Params:
    """Batch norms that expect images of more contrast than the true ones."""
    vector = trained.vector.copy()
    for _, at_variance in trained.layout.running_statistics:
        vector[at_variance] *= SPREAD
    return Params(trained.layout, vector)


def _shift(start: Params, trained: Params) -> Params:
    """Batch norms that expect other images than the true ones."""
    vector = trained.vector.copy()
    for at_mean, at_variance in trained.layout.running_statistics:
        vector[at_mean] += SHIFT * np.sqrt(vector[at_variance])
    return Params(trained.layout, vector)


def _noise(params: Params, name: str, round_no: int) -> NDArray[np.float64]:
    return np.random.default_rng(round_seed(0, name, round_no)).normal(0, NOISE, params.layout.n_trainable)


def _moved(params: Params, update: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> Params:
    vector = params.vector.copy()
    vector[: len(update)] += update.astype(np.float32)
    return Params(params.layout, vector)


ATTACKS: Mapping[str, Attack] = {
    "zero": Attack("sends the model back as it came", _zero),
    "noise": Attack("sends noise", _sends_noise),
    "flip": Attack("sends its update with the sign turned", _times(-1.0)),
    "scale": Attack("sends ten times its update", _times(SCALE)),
    "replay": Attack("trains once and sends that update for ever", _replays),
    "echo": Attack("sends back the global model of the round before", _echoes),
    "repeat": Attack("trains on one image, repeated", data=with_one_image),
    "labels": Attack("trains on inverted labels", data=with_inverted_labels),
    "inflate": Attack("claims an error of 1", says=lies.inflates),
    "pretend": Attack("halves every score that it reports", says=lies.pretends),
    "invent": Attack("sends one random direction for ever, with noise and some of everybody's last step", _invents),
    "spread": Attack(f"multiplies its running variances by {SPREAD:g}", _changed(_spread)),
    "shift": Attack(f"moves its running means by {SHIFT:g} standard deviations", _changed(_shift)),
    "collude": Attack(
        "two send opposite noise and claim an error of 1", _colludes, says=lies.discredits, is_paired=True
    ),
    "sybil": Attack("two members have the images of one", is_paired=True, is_of_one_hospital=True, trains_anew=True),
    "copy": Attack("two members send the same update", is_paired=True, is_of_one_hospital=True),
    "overstate": Attack(f"claims an error {lies.OVERSTATED:g} higher than it is", says=lies.overstates),
    "silent": Attack("leaves its error out", says=lies.keeps_quiet),
    "tiny": Attack("sends a hundredth of its update and overstates its error", _times(0.01), says=lies.overstates),
    "drift": Attack("adds a held made-up direction to its update", _drifts),
    "rotate": Attack("turns away from its honest update a little more in every round", _rotates),
    "late": Attack(f"sends three times its update from round {LATE + 1} on", _longer_late),
    "boast": Attack(
        f"claims {lies.BOAST} times its images and sends updates as long", _times(lies.BOAST), says=lies.boasts
    ),
    "vary": Attack("trains on one image, repeated, and makes up replicates", data=with_one_image, says=lies.varies),
    "hide": Attack(
        "trains on one image, repeated, and leaves its replicates out", data=with_one_image, says=lies.hides
    ),
    "dilate": Attack(f"marks {DILATED} pixels too much around everything", data=_with_dilated_masks),
    "invert": Attack("inverts its grey values", data=_with_inverted_images),
    "clone": Attack("has the images of another member", clones=True),
    "slander": Attack("votes that the model is better without any honest site", votes=lies.slander),
    "praise": Attack("votes that the model is bad without itself and its accomplice", votes=lies.praise),
    "leave": Attack(f"takes part in {lies.FIRST_ROUNDS} rounds", there=lies.at_first),
    "sulk": Attack("stays away for a round when its share fell", there=lies.unless_its_share_fell),
    "mirror": Attack("two add opposite made-up directions to their updates", _drifts, is_paired=True),
    "turns": Attack(
        "one hospital under two names, in turn",
        is_paired=True,
        is_of_one_hospital=True,
        trains_anew=True,
        there=lies.in_turn,
    ),
    "halves": Attack(
        "one hospital under two names, one after the other",
        is_paired=True,
        is_of_one_hospital=True,
        trains_anew=True,
        there=lies.in_halves,
    ),
}
