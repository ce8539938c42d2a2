"""What each number on a page means, in two sentences for readers who meet it for the first time."""

from collections.abc import Collection, Mapping
from typing import Any

from fedce.present.worth import is_about_needs

DICE = (
    "Dice",
    "How well the outline that the model draws covers the one that the site drew, from 0 (nowhere) to 1 (exactly). "
    "It is measured on test cases, which took no part in the training.",
)
GIVES = (
    "Gives",
    "How much worse the common model would do at the other sites without this site, as a share of all that the sites "
    "give; how far its update carries the model the others' way counts too. The site's own scores have no part in it.",
)
NEEDS = (
    "Needs (contribution)",
    "FedCE's contribution: high where a site's update points where no other does, and where the others' model does "
    "badly on the site's own cases. It is the site's weight in the common model, and does not say what others gain "
    "by the site.",
)
CONTRIBUTION = (
    "Contribution",
    "The weight that the method gives a site, as a share of all weights. It is the method's own measure, and does not "
    "say what others gain by the site.",
)
ALONE = (
    "Alone and gain",
    "Alone is the Dice of a model that the site trained on its own cases alone, with as many steps. Gain is the Dice "
    "of the model that the site keeps minus Alone; below 0, the site is better off alone.",
)
WITHOUT = (
    "Dice without it",
    "The Dice, on the site's own test cases, of the common model without the site's part in it. How far it lies below "
    "the Dice of the common model shows what the site's part adds for the site itself.",
)
KEEPS = (
    "Keeps",
    "The model that the site uses, and whose Dice is shown. It is the common one, unless the site's own validation "
    "cases show that a personalised one (trained on there after the last round) or the one trained alone is better.",
)
INTERVAL = (
    "95 % interval",
    "A range for a number that was measured on few cases or in few rounds: the narrower, the surer. If the ranges of "
    "two sites overlap, it may be chance which of the two is higher.",
)
AMOUNT = (
    "Share and amount",
    "The share is what the chosen rule gives the site of the budget, after the least and the most that a site may get. "
    "The amount is that share of the budget in whole cents.",
)
FROM_TO = (
    "From and to",
    "The amounts that the two ends of the 95 % interval of the site's share would give. A wide range says that this "
    "run can't tell well what the site should get.",
)


BESIDE = {"alone": ALONE, "keeps": KEEPS, "dice_without": WITHOUT}
"""What stands beside Dice, by the key of the results that holds it."""


def meanings(
    results: Mapping[str, Any], *, gives: bool, beside: Collection[str] = tuple(BESIDE)
) -> list[tuple[str, str]]:
    """The numbers about a run's sites, or about one, each with its two sentences; `beside` is what the page shows."""
    return [
        *meanings_of_shares(results, gives=gives),
        DICE,
        *(BESIDE[key] for key in BESIDE if key in beside and results.get(key)),
        INTERVAL,
    ]


def meanings_of_amounts(results: Mapping[str, Any], *, gives: bool, intervals: bool) -> list[tuple[str, str]]:
    """The numbers of an allocation."""
    return [AMOUNT, *([FROM_TO] if intervals else []), *meanings_of_shares(results, gives=gives)]


def meanings_of_shares(results: Mapping[str, Any], *, gives: bool) -> list[tuple[str, str]]:
    """What a site gives, if it was measured, and its contribution."""
    return [*([GIVES] if gives else []), NEEDS if is_about_needs(results) else CONTRIBUTION]
