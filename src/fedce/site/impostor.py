"""A site that cheats: in the place of an honest one, and honest in everything that its attack leaves alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedce.core.messages import Evaluation, Reply, Task
from fedce.core.params import Params
from fedce.core.site import Compared, Moments, Pull, Site, Trained
from fedce.data import SiteData


class Impostor:
    """A site that sends something other than what it trained or found, and is honest otherwise."""

    def __init__(self, site: Site, attack: "Attack", name: str | None = None, sign: int = 1) -> None:
        self.site, self.attack, self.sign = site, attack, sign
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
