"""Runs as a file store of MLflow: one experiment, with an MLflow run for each run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import UsageError
from .exported_run import Export, ExportedRun
from .optional_library import library_settings, optional_library

SETTINGS = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""MLflow 3 opens a file store only on request, and sends telemetry unless it is disabled."""

BATCH = 1000
"""The largest number of metrics that MLflow accepts in one call."""

ARTIFACTS = "artifacts"
"""The folder for the experiment's artifacts in the store; an export has none."""

ENDINGS = {"running": "RUNNING", "complete": "FINISHED", "killed": "KILLED"}
"""MLflow's status for each status of a run; every other status becomes FAILED."""


def write_store(export: Export) -> None:
    """Write an experiment named after the investigation, with MLflow's own client.

    Each run has its metrics by step, with the time of the step, and its mode, script, arguments and torch version as
    parameters. MLflow writes a metric as text that preserves all 64 bits, and keeps NaN and infinities. The store
    consists of files because in MLflow's databases an infinity becomes 1.8e308. Raises OSError, UsageError and
    ExtraNotFound.
    """
    with library_settings("MLFLOW_", SETTINGS):
        tracking = optional_library("mlflow.tracking", "mlflow")
        entities = optional_library("mlflow.entities", "mlflow")
        refused = optional_library("mlflow.exceptions", "mlflow").MlflowException
        try:
            client = tracking.MlflowClient(tracking_uri=export.path.absolute().as_uri())
            experiment = client.create_experiment(export.investigation, (export.place / ARTIFACTS).absolute().as_uri())
            for run in export.runs:
                _write_run(client, entities, experiment, run)
        except refused as error:
            raise UsageError(f"MLflow refuses {export.investigation}: {' '.join(str(error).split())}") from error


def _write_run(client: Any, entities: Any, experiment: str, run: ExportedRun) -> None:
    made = client.create_run(experiment, start_time=_milliseconds(run.began), run_name=run.name)
    parameters = [entities.Param(name, fact) for name, fact in run.facts.items()]
    client.log_batch(made.info.run_id, params=parameters)
    metrics = list(_metrics(entities, run))
    for start in range(0, len(metrics), BATCH):
        client.log_batch(made.info.run_id, metrics=metrics[start : start + BATCH])
    ending = ENDINGS.get(run.status, "FAILED")
    client.set_terminated(made.info.run_id, ending, None if ending == "RUNNING" else _milliseconds(run.ended))


def _metrics(entities: Any, run: ExportedRun) -> Iterator[Any]:
    for step in run.steps:
        for name, value in run.scalars(step).items():
            yield entities.Metric(name, value, _milliseconds(run.began + step.seconds), step.step)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
