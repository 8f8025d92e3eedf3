# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes side of an executor, replaced at the class that talks to the API server."""

from __future__ import annotations

from typing import Any
from unittest import mock

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import AirflowKubernetesScheduler
from kubernetes.client.rest import ApiException

from tests.support import airflow_lines

_CLIENT_GETTERS = ("_get_executor_kube_client", "get_kube_client")


class RecordingScheduler(AirflowKubernetesScheduler):  # type: ignore[misc]  # Airflow's, Any here
    """An ``AirflowKubernetesScheduler`` that asks no server: it records what it was asked to launch.

    ``answers`` are raised in turn by ``run_next``; None launches. When they are used up, all launch.
    """

    def __init__(self, *, kube_client: Any, **_: Any) -> None:
        self.kube_client = kube_client
        self.launched: list[Any] = []
        self.answers: list[Exception | None] = []
        self.ended = False

    def run_next(self, next_job: Any) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.launched.append(next_job)

    if hasattr(AirflowKubernetesScheduler, "run_next_batch"):

        def run_next_batch(self, next_jobs: list[Any]) -> list[tuple[Any, Exception | None]]:
            self.launched.extend(next_jobs)
            return [(job, None) for job in next_jobs]

    @property
    def launched_ids(self) -> list[str]:
        return [airflow_lines.id_of_job(job) for job in self.launched]

    def sync(self) -> None:
        """No watcher reports anything."""

    def terminate(self) -> None:
        self.ended = True

    def delete_pod(self, pod_name: str, namespace: str) -> None:
        """There is none."""

    patch_pod_revoked = patch_pod_executor_done = delete_pod


def quota_exceeded() -> ApiException:
    refusal = ApiException(status=403, reason="Forbidden")
    refusal.body = '{"message": "pods is forbidden: exceeded quota: workers"}'
    return refusal


def make(executor: type[Any], parallelism: int) -> Any:
    """Construct an executor; before provider 10.9 the constructor took no arguments."""
    made = executor()
    made.parallelism = parallelism
    return made


def start(executor: Any, job_id: int | str | None = 1, batch: int = 16) -> RecordingScheduler:
    """Start an executor for a scheduler's job without any API server; returns what it launches to."""
    executor.job_id = job_id
    executor.kube_config.worker_pods_creation_batch_size = batch
    from airflow.providers.cncf.kubernetes import kube_client
    from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils

    # the executor's own since provider 10.24
    getter = next(name for name in _CLIENT_GETTERS if hasattr(kube_client, name))
    with (
        mock.patch.object(kubernetes_executor_utils, "AirflowKubernetesScheduler", RecordingScheduler),
        mock.patch.object(kube_client, getter),
    ):
        executor.start()
    executor._last_completed_pod_adoption = float("inf")
    executor._list_pods = lambda _: []
    scheduler: RecordingScheduler = executor.kube_scheduler
    return scheduler
