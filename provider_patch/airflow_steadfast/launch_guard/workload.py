# SPDX-License-Identifier: Apache-2.0
"""What a job of the executor's queue was made for."""

from __future__ import annotations

from typing import Any

from airflow_steadfast.launch_guard.launch import Launch


class NotComparableError(Exception):
    """The job stands for no task instance row; ``reason`` is its value in the metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def launch_of(job: Any) -> Launch:
    """Return the launch that a ``KubernetesJob`` was made for.

    Raises ``NotComparableError`` for what cannot be compared with a task instance row and is
    launched unchecked: a command line of Airflow 2, a callback, any workload yet unknown, or an
    Airflow without workloads.
    """
    try:
        from airflow.executors.workloads import ExecuteTask
    except ImportError as error:
        raise NotComparableError("import_error") from error
    command = job.command
    if not command or not isinstance(command[0], ExecuteTask):
        raise NotComparableError("unsupported_workload")
    task_instance = command[0].ti
    return Launch(
        ti_id=str(task_instance.id), try_number=int(task_instance.try_number), key=task_instance.key
    )
