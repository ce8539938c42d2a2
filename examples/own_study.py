"""A study of your own: how the Dice of a method depends on its learning rate.

From the repository's root:

    fedce study examples.own_study:LEARNING_RATES --set data.scale=tiny --rounds 3

`trainings` names the trainings that are needed, `evaluate` makes tables and findings of them. Trainings are done
together, kept in runs/store and shared with other studies. An installed package may give the study a shorter name, by
an entry point of the group fedce.studies.
"""

from statistics import fmean

from fedce.base.config import Config
from fedce.studies import Context, Outcome, Study, Table

TITLE = "FedAvg by its learning rate"
RATES = (1e-4, 1e-3)


def _training(context: Context, rate: float, seed: int) -> Config:
    train = context.config.train.model_copy(update={"lr": rate})
    return context.training("fedavg", seed, train=train)


def trainings(context: Context) -> list[Config]:
    return [_training(context, rate, seed) for rate in RATES for seed in context.seeds]


def evaluate(context: Context) -> Outcome:
    dice = {
        rate: fmean(context.result(_training(context, rate, seed)).fairness["mean"] for seed in context.seeds)
        for rate in RATES
    }
    rows = [[f"{rate:g}", 100 * mean] for rate, mean in dice.items()]
    table = Table("rates", "Test Dice, %: mean over sites and seeds.", ["learning rate", "Dice"], rows)
    best = max(dice, key=dice.__getitem__)
    return Outcome("learning-rates", TITLE, [f"The highest mean Dice is that of the learning rate {best:g}."], [table])


LEARNING_RATES = Study(TITLE, trainings, evaluate)
