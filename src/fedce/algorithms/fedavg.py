"""FedAvg (McMahan et al., 2017): weights in proportion to the number of training images."""

from fedce.algorithms.shared import BySamples
from fedce.core.algorithm import hyperparameters


@hyperparameters
class FedAvg(BySamples):
    """Every site weighs by its number of training images.

    >>> from fedce.core.algorithm import Credit, Terms
    >>> FedAvg().gains(Credit({}), {"north": Terms(30), "south": Terms(10)})
    {'north': (30.0,), 'south': (10.0,)}
    """
