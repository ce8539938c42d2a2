"""A ballot as the ledger holds it."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from fedce.base.ranges import Score
from fedce.core.ballot import Ballot
from fedce.record.forms import Form, Number, Signed


class BallotFacts(Form):
    """How sites scored the common model and the models that lack one of them."""

    without: list[str]
    scores: Mapping[str, list[Score]]
    carried: Mapping[str, Number]
    signed: Mapping[str, list[Signed]] = {}
    decoy: Mapping[str, Score] = {}
    """Each scorer's score of the decoy; earlier versions had none."""
    secret: str = ""
    no_vote: Mapping[str, str] = {}
    """Sites that were asked and gave no vote, with the reason; earlier versions did not say."""

    @model_validator(mode="after")
    def _scores_every_model(self) -> Self:
        for site, scores in self.scores.items():
            if len(scores) != len(self.without) + 1:
                raise ValueError(f"{site} gave {len(scores)} scores for {len(self.without) + 1} models")
        if set(self.carried) != set(self.without):
            raise ValueError("carried and without are not of the same sites")
        if self.decoy and set(self.decoy) != set(self.scores):
            raise ValueError("the decoy was not scored by the scorers of the other models")
        return self

    @property
    def ballot(self) -> Ballot:
        return Ballot(
            tuple(self.without),
            self.scores,
            self.carried,
            decoy=self.decoy,
            secret=self.secret,
            no_vote=self.no_vote,
        )
