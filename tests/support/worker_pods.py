# SPDX-License-Identifier: Apache-2.0
"""Worker pods of a real executor on a kube-apiserver without a kubelet: driven, looked at, and played."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

import pytest
from airflow.executors import base_executor
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

from tests.support.airflow_lines import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.apiserver import ApiServer

__all__ = [
    "beat",
    "concurrent",
    "creates",
    "needs_requeue",
    "needs_two_launches_of_a_key",
    "play",
    "set_quota",
    "states",
    "submit",
    "task_ids",
]

BEATS = 200

RUNNING_KEYS_WAIT = "if key in self.running:" in inspect.getsource(base_executor)
"""Whether the executor's base class lets a key wait while it is running (before Airflow 3.1)."""

needs_two_launches_of_a_key = pytest.mark.skipif(
    RUNNING_KEYS_WAIT, reason="before Airflow 3.1 no launch of a key is queued while another is running"
)
HAS_REQUEUE = hasattr(KubernetesExecutor, "_is_pre_execution_failure")
"""Whether the provider queues a launch again whose pod died before its task began (10.20)."""
needs_requeue = pytest.mark.skipif(
    not HAS_REQUEUE,
    reason="before provider 10.20 a pod that dies before its task begins fails the task",
)


def creation_paths() -> list[bool]:
    """Whether ``async_pod_creation`` is on: off and on where the provider has it (10.21), else off."""
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import (
        AirflowKubernetesScheduler,
    )

    return [False, True] if hasattr(AirflowKubernetesScheduler, "run_next_batch") else [False]


@pytest.fixture(params=creation_paths(), ids=lambda on: "concurrent" if on else "sequential")
def concurrent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each creation path of the provider."""
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__ASYNC_POD_CREATION", str(request.param))
    return bool(request.param)


def beat(executor: Any, done: Callable[[], bool] = lambda: True) -> None:
    """Run scheduler loops, at least one, until ``done``; raises AssertionError if it never is."""
    for _ in range(BEATS):
        executor.heartbeat()
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("the executor never got there")


def states(executor: Any) -> dict[str, str]:
    """What the executor would tell the scheduler, by task; QUEUED left out."""
    return {
        key.task_id: str(getattr(state, "value", state))
        for key, (state, _) in executor.event_buffer.items()
        if str(getattr(state, "value", state)) != "queued"
    }


def task_ids(pods: Iterable[Any]) -> list[str]:
    """The task of each pod, sorted: a task twice is a task with two pods."""
    return sorted(pod.metadata.annotations["task_id"] for pod in pods)


def play(cluster: ApiServer, pod: Any, phase: str, reason: str = "") -> None:
    """Write a pod's phase as a kubelet does; ``reason`` is why its container ended."""
    from kubernetes.client import models as k8s

    status: dict[str, Any] = {"phase": phase}
    if phase in {"Failed", "Succeeded"}:
        ended = k8s.V1ContainerStateTerminated(
            exit_code=0 if phase == "Succeeded" else 1, reason=reason or "Completed"
        )
        status["container_statuses"] = [
            k8s.V1ContainerStatus(
                name="base",
                image="none",
                image_id="none",
                ready=False,
                restart_count=0,
                state=k8s.V1ContainerState(terminated=ended),
            )
        ]
    cluster.client().patch_namespaced_pod_status(
        pod.metadata.name, pod.metadata.namespace, k8s.V1Pod(status=k8s.V1PodStatus(**status))
    )


def creates(cluster: ApiServer, namespace: str) -> list[int]:
    """The server's answers to each create of a pod."""
    return [
        request.status
        for request in cluster.requests()
        if request.verb == "create" and request.namespace == namespace
    ]


def set_quota(cluster: ApiServer, namespace: str, allowed: int) -> None:
    """A ResourceQuota with the status that the controller would give it; no controller runs here."""
    from kubernetes.client import models as k8s

    api = cluster.client()
    hard = {"pods": str(allowed)}
    quota = k8s.V1ResourceQuota(
        metadata=k8s.V1ObjectMeta(name="workers"), spec=k8s.V1ResourceQuotaSpec(hard=hard)
    )
    if not api.list_namespaced_resource_quota(namespace).items:
        api.create_namespaced_resource_quota(namespace, quota)
    quota.status = k8s.V1ResourceQuotaStatus(hard=hard, used={"pods": "0"})
    api.patch_namespaced_resource_quota("workers", namespace, quota)
    api.patch_namespaced_resource_quota_status("workers", namespace, quota)
