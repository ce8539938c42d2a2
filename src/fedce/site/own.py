"""What a site does for itself: a model trained alone beside the federation, and at the end a choice of its model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedce.base.config import Config
from fedce.core.messages import Beside, Choice, Evaluation, Reply, Task
from fedce.core.params import Params
from fedce.core.site import Memory, Site, Solo


@dataclass(frozen=True)
class ForItself:
    """What the experiment asks of a site beside the algorithm's task."""

    alone: bool = False
    """Train a model alone, with as many steps as the site makes in the federation."""
    personalise: int = 0
    """Rounds of local training after the last round."""

    @classmethod
    def asked_by(cls, config: Config, exchanges: bool) -> "ForItself":
        """What an experiment asks; if no models are exchanged, nothing, because every site is alone already."""
        return cls(config.alone, config.personalise) if exchanges else cls()

    def __bool__(self) -> bool:
        return self.alone or self.personalise > 0


def step_alone(site: Site, task: Task, before: Memory | None, initial: Params) -> Solo:
    """The round's training again, of the model that is trained alone."""
    # In the first round all sites start from one model; a site that joins later starts from the network as built.
    solo = before.solo if before and before.solo else Solo(task.params if task.round_no == 0 else initial)
    trained = site.train(solo.params, task.round_no, solo.moments)
    return Solo(trained.params, trained.moments)


def with_own_models(site: Site, task: Task, memory: Memory | None, reply: Reply, wanted: ForItself) -> Reply:
    """The final evaluation, with what the site reaches alone and after further training by itself.

    If it personalises, the site keeps one of the three models by its own validation cases and is evaluated with it.
    """
    assert reply.evaluation is not None
    common = reply.params or task.params
    candidates: dict[Choice, Params] = {"common": common}
    if wanted.personalise:
        candidates["personal"] = _personalised(site, task, memory, common, wanted.personalise)
    solo = memory.solo if memory else None
    if wanted.alone and solo is not None:
        candidates["alone"] = solo.params
    kept = _best(site, candidates) if wanted.personalise else "common"
    evaluation = _evaluated(site, reply.evaluation, candidates[kept]) if kept != "common" else reply.evaluation
    compared = site.compare(candidates[kept], candidates.get("alone"))
    personal = site.test_dice(candidates["personal"]) if "personal" in candidates else None
    of_common = reply.evaluation.test_dice
    beside = Beside(kept, of_common, personal, compared.other, compared.other_interval, compared.gain)
    # The site sends a chosen model; without a choice, it sends what the algorithm sends.
    params = candidates[kept] if wanted.personalise else reply.params
    return replace(reply, evaluation=replace(evaluation, beside=beside), params=params)


def _personalised(site: Site, task: Task, memory: Memory | None, common: Params, n_rounds: int) -> Params:
    model, moments = common, memory.moments if memory else {}
    for i in range(n_rounds):
        trained = site.train(model, task.round_no + i, moments)
        model, moments = trained.params, trained.moments
    return model


def _best(site: Site, candidates: Mapping[Choice, Params]) -> Choice:
    """The best model on the validation cases among those that exceed the common one by more than a standard error.

    The best of three models on a few cases is often not the best on other cases, and the common model has learned from
    all sites. The common model is kept unless these cases show that another one is better.
    """
    scores = dict(zip(candidates, site.scores(list(candidates.values())), strict=True))
    samples = {name: np.array(site.score_replicates(model)) for name, model in candidates.items()}

    def is_shown(name: Choice) -> bool:
        # The bootstrap samples are the same for all models, so that their differences are paired.
        differences = samples[name] - samples["common"]
        error = float(differences.std(ddof=1)) if differences.size else 0.0
        return scores[name] - scores["common"] > error

    return max((name for name in candidates if name == "common" or is_shown(name)), key=lambda name: scores[name])


def _evaluated(site: Site, of_common: Evaluation, kept: Params) -> Evaluation:
    """The evaluation of the kept model; the Dice without this site stays that of the federation."""
    return replace(site.evaluate(kept, None), test_dice_without=of_common.test_dice_without)
