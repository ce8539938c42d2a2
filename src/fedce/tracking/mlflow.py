"""MLflow: one MLflow run for each run folder, found again by the hash of the ledger's first line."""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedce.tracking.tracker import RoundValues, TrackedRun, Tracker

MOST_METRICS, MOST_SETTINGS, LONGEST_VALUE = 1000, 100, 500
"""What MLflow takes in one request, and as the value of a parameter or tag."""
IDENTITY, ROUND = "fedce.start", "round"
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # A folder is what the experiment asked for; MLflow would rather have a database.
    "MLFLOW_ALLOW_FILE_STORE": "true",
    # Training waits for the server: by MLflow's own defaults, minutes if the server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class MlflowLog:
    """Metrics with the round as step; report, models and results as artifacts."""

    def __init__(self, run: TrackedRun, target: str) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._client: Any = MlflowClient(tracking_uri=_address(target))
        self._run = self._begun(run)
        self._is_finished = False
        found = self._client.get_run(self._run)
        self.n_rounds = int(found.data.metrics.get(ROUND, 0))
        if found.info.status != "RUNNING":
            self._client.update_run(self._run, status="RUNNING")

    def _begun(self, run: TrackedRun) -> str:
        """The number of the MLflow run, which may have been begun before a kill."""
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedce"))
        known = self._client.search_runs([experiment], f"tags.`{IDENTITY}` = '{run.identity}'", max_results=1)
        if known:
            return str(known[0].info.run_id)
        # The tag that says whose run it is comes with the run, so a kill leaves no run that nobody finds.
        created = self._client.create_run(experiment, run_name=run.name, tags={IDENTITY: run.identity})
        self._log_settings(created.info.run_id, run.settings)
        return str(created.info.run_id)

    def _experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known is not None else self._client.create_experiment(name))

    def _log_settings(self, run_id: str, settings: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        params = [Param(valid_name(key), value[:LONGEST_VALUE]) for key, value in settings.items()]
        for first in range(0, len(params), MOST_SETTINGS):
            self._client.log_batch(run_id, params=params[first : first + MOST_SETTINGS])

    def round(self, values: RoundValues) -> None:
        from mlflow.entities import Metric

        # The round's number comes last: it says that everything before it has arrived.
        numbers = {**{valid_name(name): value for name, value in values.named.items()}, ROUND: float(values.number)}
        metrics = [Metric(name, value, int(1000 * values.time), values.number) for name, value in numbers.items()]
        for site, words in values.flags.items():
            told = f"round {values.number}: {'; '.join(words)}"
            self._client.set_tag(self._run, valid_name(f"flags/{site}"), told[:LONGEST_VALUE])
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[first : first + MOST_METRICS])

    def finish(self, results: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        for site, dice in results["dice"].items():
            self._client.log_metric(self._run, valid_name(f"test_dice/{site}"), dice)
        for name, path in files.items():
            self._client.log_artifact(self._run, str(path), str(Path(name).parent) if "/" in name else None)
        self._client.set_terminated(self._run, "FINISHED")
        self._is_finished = True

    def close(self, *, stopped: bool) -> None:
        if stopped and not self._is_finished:
            self._client.set_terminated(self._run, "KILLED")


def _address(target: str) -> str:
    """An address as it is; a path as the address of a folder, because MLflow does not take every path for one."""
    return target if re.match(r"[a-z][a-z0-9+.\-]+:", target) else Path(target).resolve().as_uri()


def valid_name(name: str) -> str:
    """A name that MLflow takes: other signs become "_", with a digest so that two names stay two.

    >>> valid_name("dice/site 1"), valid_name("dice/Köln (A)")
    ('dice/site 1', 'dice/Köln _A_-10a7')
    """
    valid = re.sub(r"[^\w. :/\-]", "_", name)
    return name if valid == name else f"{valid}-{sha256(name.encode()).hexdigest()[:4]}"


MLFLOW = Tracker(MlflowLog, target="URI", absolute=_address, package="mlflow")
