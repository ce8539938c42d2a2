"""FedCE in the order of NVFlare's implementation (D14): raw terms are averaged over the rounds, then combined."""

from collections.abc import Mapping
from typing import Any

from fedce.algorithms.fedce import FedCE, combined, normalised
from fedce.algorithms.fedce_at_sites import FedCEAtSites
from fedce.core.algorithm import hyperparameters
from fedce.core.credit import Credit, Gains


@hyperparameters
class FedCERunningMeans(FedCE):
    """FedCE whose accounts hold the sums of both terms."""

    def gains(self, credit: Credit, terms: Mapping[str, Any]) -> Gains:
        measured = {i: term for i, term in terms.items() if term.cos is not None}
        return {i: (term.cos, _error(credit, i) if term.err is None else term.err) for i, term in measured.items()}

    def earned(self, credit: Credit) -> dict[str, float]:
        cos: dict[str, float | None] = {i: account.means[0] for i, account in credit.items()}
        err: dict[str, float | None] = {i: account.means[1] for i, account in credit.items()}
        return normalised(combined(self.combine, cos, err))


def _error(credit: Credit, site: str) -> float:
    """The site's error term; a term that was not measured counts as the mean so far."""
    return credit[site].means[1] if site in credit else 1.0


@hyperparameters
class FedCEAtSitesRunningMeans(FedCERunningMeans, FedCEAtSites):
    """Both readings: measured at the sites, in NVFlare's order."""
