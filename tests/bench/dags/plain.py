# SPDX-License-Identifier: Apache-2.0
"""A Dag without any Kubernetes operator."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, BaseOperator
from bench_cpu import note_cpu


class Noting(BaseOperator):
    """Notes the CPU used so far, and does nothing."""

    def execute(self, context: Any) -> None:
        note_cpu()


with DAG("plain", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    Noting(task_id="task")
