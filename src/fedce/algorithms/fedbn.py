"""FedBN (Li et al., 2021): FedAvg, but every site keeps its own normalisation layers (B8)."""

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import Traits, hyperparameters


@hyperparameters
class FedBN(BySamples):
    """FedAvg with `model.norm = "site-affine"`, which can be set for any other algorithm too."""

    @property
    def traits(self) -> Traits:
        return Traits(accumulates=False, keeps_norms=True)
