# SPDX-License-Identifier: Apache-2.0
"""A Dag with the Kubernetes operator, which the patch works on when it is imported."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from bench_cpu import note_cpu


class NotingPod(KubernetesPodOperator):
    """Notes the CPU used so far, and launches no pod."""

    def execute(self, context: Any) -> None:
        note_cpu()


with DAG("pod", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    NotingPod(task_id="task", image="registry.invalid/image:1")
