# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes side of an executor, replaced at the class that talks to the API server."""

from __future__ import annotations

from typing import Any
from unittest import mock

from kubernetes.client.rest import ApiException


class RecordingScheduler:
    """Stands in for ``AirflowKubernetesScheduler``: records what it was asked to launch.

    ``answers`` are raised in turn by ``run_next``; None launches. When they are used up, all launch.
    """

    def __init__(self, **_: Any) -> None:
        self.launched: list[Any] = []
        self.answers: list[Exception | None] = []
        self.ended = False

    def run_next(self, job: Any) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.launched.append(job)

    def run_next_batch(self, jobs: list[Any]) -> list[tuple[Any, Exception | None]]:
        self.launched.extend(jobs)
        return [(job, None) for job in jobs]

    @property
    def launched_ids(self) -> list[str]:
        return [str(job.command[0].ti.id) for job in self.launched]

    def sync(self) -> None:
        """No watcher reports anything."""

    def terminate(self) -> None:
        self.ended = True

    def delete_pod(self, **_: Any) -> None:
        """There is none."""

    patch_pod_revoked = patch_pod_executor_done = delete_pod


def quota_exceeded() -> ApiException:
    refusal = ApiException(status=403, reason="Forbidden")
    refusal.body = '{"message": "pods is forbidden: exceeded quota: workers"}'
    return refusal


def start(executor: Any, job_id: int | str | None = 1, batch: int = 16) -> RecordingScheduler:
    """Start an executor for a scheduler's job without any API server; returns what it launches to."""
    executor.job_id = job_id
    executor.kube_config.worker_pods_creation_batch_size = batch
    module = "airflow.providers.cncf.kubernetes"
    with (
        mock.patch(
            f"{module}.executors.kubernetes_executor_utils.AirflowKubernetesScheduler", RecordingScheduler
        ),
        mock.patch(f"{module}.kube_client._get_executor_kube_client"),
    ):
        executor.start()
    executor._last_completed_pod_adoption = float("inf")
    executor._list_pods = lambda _: []
    scheduler: RecordingScheduler = executor.kube_scheduler
    return scheduler
