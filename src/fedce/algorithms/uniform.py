"""Uniform: every site weighs the same. A strong baseline that is missing in the paper."""

from fedce.algorithms.shared import Alike
from fedce.core.algorithm import hyperparameters


@hyperparameters
class Uniform(Alike):
    """Every site weighs 1/N.

    >>> from fedce.core.algorithm import Credit, Terms
    >>> Uniform().gains(Credit({}), {"north": Terms(30), "south": Terms(10)})
    {'north': (1.0,), 'south': (1.0,)}
    """
