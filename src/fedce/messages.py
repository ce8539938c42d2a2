"""Task and Reply: the only things that cross the network. A new field is a privacy decision (docs/privacy.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedce.params import Params


@dataclass(frozen=True)
class Task:
    """What the server asks of one site."""

    site: str
    round_no: int
    params: Params
    """The global model w."""
    rho: float | None = None
    """The site's own weight in `params`; None if its last model did not enter it."""
    action: Literal["train", "evaluate"] = "train"
    persist: bool = False
    """Write the site's memory to its disk before replying, so that the run can be resumed from here."""


@dataclass(frozen=True)
class Evaluation:
    """How a model does on one site's data; Dice as a fraction."""

    validation_dice: float
    test_dice_by_class: Mapping[str, float]
    test_dice_without: float | None
    """Test Dice of the model built from all other sites; None where there is no such model."""
    n_test: int

    @property
    def test_dice(self) -> float:
        return sum(self.test_dice_by_class.values()) / len(self.test_dice_by_class)


@dataclass(frozen=True)
class Reply:
    """What a site answers. Scores are in [0, 1], higher is better; error = 1 - score."""

    site: str
    round_no: int
    n_train: int
    params: Params | None = None
    """The site's model after local training, w_i."""
    score: float | None = None
    """Validation score of the received model."""
    error_without: float | None = None
    """Validation error of the model built from all other sites (Eq. 3); None if there is no such model yet."""
    novelty: float | None = None
    """Eq. 2 as measured by the site itself, about the previous round (estimate="site")."""
    loss: float | None = None
    """Mean training loss."""
    evaluation: Evaluation | None = None
    seconds: float = 0.0
