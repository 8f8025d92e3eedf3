# SPDX-License-Identifier: Apache-2.0
"""What a job of the executor's queue was made for."""

from __future__ import annotations

from typing import Any

from airflow_steadfast.launch_guard import rows, token
from airflow_steadfast.launch_guard.launch import Launch

COMMAND = ["airflow", "tasks", "run"]
"""How the command line of an Airflow 2 workload begins."""


class NotComparableError(Exception):
    """The job stands for no task instance row; ``reason`` is its value in the metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def launch_of(job: Any) -> Launch:
    """Return the launch that a ``KubernetesJob`` was made for.

    Raises ``NotComparableError`` for what cannot be compared with a task instance row and is launched
    unchecked: a callback, any workload yet unknown, a task instance whose id is malformed, or an
    Airflow whose workloads cannot be imported.
    """
    launch = _of_job(job)
    if not rows.is_comparable(launch.row_key):
        raise NotComparableError("unsupported_workload")
    return launch


def _of_job(job: Any) -> Launch:
    command = job.command
    if not command:
        raise NotComparableError("unsupported_workload")
    if isinstance(command[0], str):
        return _of_command(command, job.key)
    try:
        from airflow.executors.workloads import ExecuteTask
    except ImportError as error:
        raise NotComparableError("import_error") from error
    if not isinstance(command[0], ExecuteTask):
        raise NotComparableError("unsupported_workload")
    workload = command[0]
    task_instance = workload.ti
    return Launch(
        ti_id=str(task_instance.id),
        try_number=int(task_instance.try_number),
        key=task_instance.key,
        token_expires_at=token.expires_at(getattr(workload, "token", None)),
    )


def ti_id_of(task_instance: Any) -> str:
    """Return ``Launch.ti_id`` of a row: its id, or on Airflow 2 its primary key."""
    if hasattr(task_instance, "id"):
        return str(task_instance.id)
    return _as_text(_primary_key(task_instance))


def _of_command(command: Any, key: Any) -> Launch:
    """Compare a command line by the executor's key; its own words name no try."""
    if list(command[:3]) != COMMAND or not hasattr(key, "map_index"):
        raise NotComparableError("unsupported_workload")
    primary_key = _primary_key(key)
    return Launch(ti_id=_as_text(primary_key), try_number=int(key.try_number), key=key, row_key=primary_key)


def _primary_key(named: Any) -> tuple[str, str, str, int]:
    return str(named.dag_id), str(named.task_id), str(named.run_id), int(named.map_index)


def _as_text(primary_key: tuple[str, str, str, int]) -> str:
    """One text per key: neither Dag nor task ids hold a slash, and the last part is a number."""
    return "/".join(map(str, primary_key))
