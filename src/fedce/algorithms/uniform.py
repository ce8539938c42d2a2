"""Uniform: every site weighs the same. A strong baseline that is missing in the paper."""

from fedce.algorithms.shared import Alike
from fedce.core.algorithm import hyperparameters


@hyperparameters
class Uniform(Alike):
    """Every site weighs 1/N."""
