"""FedCE for NVFlare's own recipes: `FedAvgRecipe(aggregator=FedCEAggregator(), ...)`; client scripts stay as they are.

The meta keys are those of NVFlare's FedCE. A client sends the update, and `fedce_minus_val`: the mean error so far of
the model without it. It gets `fedce_coef`: all sites' weights in the model, 0 for a site without a part in it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from fedce.algorithms.fedce import BothTerms, gamma_cos
from fedce.algorithms.fedce_running_means import FedCERunningMeans
from fedce.base.errors import ConfigError, ReplyError, nearest
from fedce.base.files import read_sealed, write_sealed
from fedce.core.credit import Account, Credit
from fedce.core.params import (
    KINDS,
    MAX_EXACT_COUNT,
    Entry,
    Layout,
    Params,
    from_named,
    inner_products,
    to_named,
    weighted_sum,
)

ERROR, WEIGHTS = "fedce_minus_val", "fedce_coef"
COMBINE = {"plus": "sum", "times": "product"}
Shapes = tuple[tuple[str, tuple[int, ...], bool], ...]
"""For each parameter: name, shape, and whether it holds whole numbers."""
MIN_SITES = 2
"""The fewest updates of a round: a single one has no others to be compared with."""


class FedCEAggregator(ModelAggregator):  # type: ignore[misc]
    """Weights the present sites by contribution; an update that can't be used is refused with a line in the log."""

    def __init__(
        self,
        mode: str = "plus",
        trainable_param_names: Sequence[str] | None = None,
        max_share: float = 0.8,
        history_file: str | None = None,
    ) -> None:
        """`history_file` is written after every round, so that a restarted job continues with the credit so far."""
        super().__init__()
        if mode not in COMBINE:
            raise ConfigError(f"mode: expected plus or times, got {mode!r}{nearest(str(mode), COMBINE)}")
        # NVFlare writes a job from attributes with the names of the arguments.
        self.mode, self.max_share, self.history_file = mode, max_share, history_file
        self.trainable_param_names = list(trainable_param_names or [])
        combine = cast(Literal["sum", "product"], COMBINE[mode])
        self._algorithm = FedCERunningMeans(combine=combine, max_share=max_share)
        self._results: dict[str, FLModel] = {}
        self._shapes: Shapes | None = None
        self._round_no = -1
        self._before = self.credit = Credit()
        """The credit of each site over the rounds that it took part in."""
        if history_file and Path(history_file).exists():
            self.restore(read_sealed(Path(history_file)))

    @property
    def shares(self) -> dict[str, float]:
        """Contributions so far of all sites that ever took part; they sum to 1."""
        return self._algorithm.shares(self.credit) if self.credit else {}

    def reset_stats(self) -> None:
        self._results = {}

    def accept_model(self, model: FLModel) -> None:
        meta = model.meta or {}
        site = str(meta.get("client_name") or "")
        try:
            if not site:
                raise ReplyError("it does not name its site")
            if site in self._results:
                raise ReplyError("the site has already sent an update in this round")
            _check(model)
        except ReplyError as error:
            # Logged, not raised: NVFlare would drop the client without a message.
            self.warning(f"FedCE refused an update of {site or '?'}: {error}")
            return
        self._results[site] = model

    def aggregate_model(self) -> FLModel:
        results = self._with_one_shape()
        if self._shapes is None:
            raise ReplyError("FedCE got no usable update in the first round")
        layout = self._layout()
        round_no = next((result.current_round for result in results.values()), None)
        if len(results) < MIN_SITES:
            self.error(f"FedCE needs {MIN_SITES} usable updates and got {len(results)}; the model is not changed")
            rho: dict[str, float] = {}
            mean = Params(layout, np.zeros(layout.size, np.float32))
        else:
            parts = {site: from_named(layout, _arrays(result.params)) for site, result in results.items()}
            rho = self._earn(parts, round_no)
            mean = weighted_sum(list(parts.values()), [rho[site] for site in parts])
        return FLModel(
            params=_like(to_named(mean), results),
            params_type=ParamsType.DIFF,
            metrics=_metrics(results, rho),
            current_round=round_no,
            meta={WEIGHTS: {**dict.fromkeys(self.credit, 0.0), **rho}, "nr_aggregated": len(rho)},
        )

    def _earn(self, parts: Mapping[str, Params], round_no: int | None) -> dict[str, float]:
        """Add the round's credit (Eqs. 2-5); returns the weights of the sites present."""
        if round_no is not None and round_no <= self._round_no:
            self.credit = self._before  # A repeated round counts once.
        present = dict.fromkeys(parts, BothTerms(1))
        rho_prev = self._algorithm.weigh(self.credit, present)
        products = inner_products([part.trainable for part in parts.values()])
        c = np.array([rho_prev[site] for site in parts])
        self._before = self.credit
        added = self.credit.plus({site: (cos, 0.0) for site, cos in zip(parts, gamma_cos(products, c), strict=True)})
        # The client sends its mean error over the rounds; the account holds the sum.
        errors = {site: float(self._results[site].meta[ERROR]) * added[site].rounds for site in parts}
        present_now = {site: Account(added[site].rounds, (added[site].totals[0], err)) for site, err in errors.items()}
        self.credit = Credit({**added, **present_now})
        self._round_no = self._round_no + 1 if round_no is None else round_no
        if self.history_file:
            write_sealed(Path(self.history_file), self.history())
        return self._algorithm.weigh(self.credit, present)

    def history(self) -> dict[str, Any]:
        """Everything that a later round needs, as a JSON value."""
        return {
            "round": self._round_no,
            "before": {site: asdict(account) for site, account in self._before.items()},
            "credit": {site: asdict(account) for site, account in self.credit.items()},
        }

    def restore(self, history: Mapping[str, Any]) -> None:
        self._round_no = int(history["round"])
        self._before, self.credit = _credit(history["before"]), _credit(history["credit"])

    def _with_one_shape(self) -> dict[str, FLModel]:
        """Updates with the parameters of earlier rounds or of most sites; sorted, because sums depend on order."""
        shapes = {site: _shapes(result.params) for site, result in sorted(self._results.items())}
        if self._shapes is None and shapes:
            self._shapes = Counter(shapes.values()).most_common(1)[0][0]
        for site in [site for site, shape in shapes.items() if shape != self._shapes]:
            self.warning(f"FedCE refused an update of {site}: its parameters are not those of the others' model")
            del self._results[site]
        return dict(sorted(self._results.items()))

    def _layout(self) -> Layout:
        assert self._shapes is not None
        chosen = set(self.trainable_param_names) or {name for name, _, _ in self._shapes}
        entries = [
            Entry(name, shape, "counter" if whole else "trainable" if name in chosen else "buffer")
            for name, shape, whole in self._shapes
        ]
        return Layout(tuple(sorted(entries, key=lambda entry: KINDS.index(entry.kind))))


def _check(model: FLModel) -> None:
    if model.params_type != ParamsType.DIFF:
        raise ReplyError(f"expected the change of the model (ParamsType.DIFF), got {model.params_type}")
    if not model.params:
        raise ReplyError("it is empty")
    try:
        arrays = _arrays(model.params)
    except Exception as problem:  # noqa: BLE001 (a bad update must not end the others' round)
        raise ReplyError(f"its parameters can't be read ({type(problem).__name__}: {problem})") from None
    for name, array in arrays.items():
        if not (np.issubdtype(array.dtype, np.floating) or _is_whole(array)):
            raise ReplyError(f"{name} has the type {array.dtype}; expected numbers")
        # In the precision of the computation: a number that overflows here would be infinite in the model.
        with np.errstate(over="ignore"):
            values = array.astype(np.float32)
        if not np.isfinite(values).all():
            raise ReplyError(f"{name} holds values that are not numbers, or are too large")
        if _is_whole(array) and np.abs(values).max(initial=0) > MAX_EXACT_COUNT:
            raise ReplyError(f"{name} counts above {MAX_EXACT_COUNT}")
    error = (model.meta or {}).get(ERROR)
    if isinstance(error, bool) or not isinstance(error, int | float) or not isfinite(error) or not 0 <= error <= 1:
        raise ReplyError(f"{ERROR}: expected an error from 0 to 1, got {error!r}")


def _array(value: Any) -> NDArray[Any]:
    # NVFlare may have left a tensor on disk; it is read here.
    value = value.materialize() if callable(getattr(value, "materialize", None)) else value
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # numpy has no bfloat16.
        tensor = tensor.float()
    array: NDArray[Any] = tensor.numpy()
    return array


def _arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: _array(value) for name, value in params.items()}


def _is_whole(array: NDArray[Any]) -> bool:
    """Whether an array holds whole numbers: counts of batches, which are not averaged."""
    return bool(np.issubdtype(array.dtype, np.integer))


def _shapes(params: Mapping[str, Any]) -> Shapes:
    return tuple(sorted((name, array.shape, _is_whole(array)) for name, array in _arrays(params).items()))


def _like(arrays: Mapping[str, NDArray[Any]], results: Mapping[str, FLModel]) -> dict[str, Any]:
    """The arrays in the form that most clients sent: tensors or arrays, with their precision."""
    made: dict[str, Any] = {}
    for name, array in arrays.items():
        sent = [result.params[name] for result in results.values()]
        types = Counter(value.dtype if isinstance(value, torch.Tensor) else _array(value).dtype for value in sent)
        wanted = types.most_common(1)[0][0] if types else torch.float32
        if isinstance(wanted, torch.dtype):
            made[name] = torch.from_numpy(np.array(array)).to(wanted)
        else:
            made[name] = array.astype(wanted)
    return made


def _metrics(results: Mapping[str, FLModel], rho: Mapping[str, float]) -> dict[str, float] | None:
    """Weighted means of those metrics that all sites have sent."""
    sent = [(rho[site], results[site].metrics or {}) for site in rho]
    common = set.intersection(*(set(metrics) for _, metrics in sent)) if sent else set()
    numbers = [key for key in sorted(common) if all(isinstance(metrics[key], int | float) for _, metrics in sent)]
    return {key: sum(weight * metrics[key] for weight, metrics in sent) for key in numbers} or None


def _credit(kept: Mapping[str, Any]) -> Credit:
    return Credit({site: Account(account["rounds"], tuple(account["totals"])) for site, account in kept.items()})
