# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import models as k8s

from tests.support.apiserver import ApiServer, api_server
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.guard_fixtures import database, fresh_process_state, server, tasks
from tests.support.worker_pods import concurrent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["concurrent", "database", "fresh_process_state", "server", "tasks"]

TEMPLATE = """
apiVersion: v1
kind: Pod
metadata: {name: template}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers: [{name: base, image: "docker.io/apache/airflow:3.3.2"}]
"""
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture(scope="session")
def started_proxy(cluster: ApiServer) -> Iterator[FaultProxy]:
    with fault_proxy(cluster) as running:
        yield running


@pytest.fixture
def proxy(started_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A fault proxy that executors started after this one is asked for talk through."""
    monkeypatch.setenv("TESTED_KUBECONFIG", str(started_proxy.kubeconfig))
    yield started_proxy
    started_proxy.clear()


@pytest.fixture
def namespace(cluster: ApiServer) -> str:
    name = f"workers-{next(_NUMBERS)}"
    cluster.client().create_namespace(k8s.V1Namespace(metadata=k8s.V1ObjectMeta(name=name)))
    return name


@pytest.fixture
def pods(cluster: ApiServer, namespace: str) -> Callable[[], list[Any]]:
    """The worker pods that exist now."""
    api = cluster.client()
    return lambda: api.list_namespaced_pod(namespace).items


@pytest.fixture
def start_executor(
    database: str, cluster: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Iterator[Callable[..., Any]]:
    """Start a real executor, guarded or (``stock=True``) the provider's own; ended after the test."""
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import ResourceVersion

    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor

    # Its watchers have been started by another test's executor of this process, perhaps: with the
    # resource version that was reached then, they would not tell of this namespace's first pods.
    ResourceVersion().resource_version.clear()
    template = tmp_path / "template.yaml"
    template.write_text(TEMPLATE, encoding="utf-8")
    options = {
        "IN_CLUSTER": "False",
        "CONFIG_FILE": os.environ.get("TESTED_KUBECONFIG", str(cluster.kubeconfig)),
        "NAMESPACE": namespace,
        "POD_TEMPLATE_FILE": str(template),
        "WORKER_CONTAINER_REPOSITORY": "docker.io/apache/airflow",
        "WORKER_CONTAINER_TAG": "3.3.2",
        "WORKER_PODS_CREATION_BATCH_SIZE": "16",
        "TASK_PUBLISH_MAX_RETRIES": "-1",
    }
    # however slow the machine is: the check's own bounds are tested elsewhere
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CHECK_TIMEOUT", "30")
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_RECHECK_AGE", "60")
    for name, value in options.items():
        if f"AIRFLOW__KUBERNETES_EXECUTOR__{name}" not in os.environ:
            monkeypatch.setenv(f"AIRFLOW__KUBERNETES_EXECUTOR__{name}", value)
    started = []

    def start(*, stock: bool = False, job_id: int = 1) -> Any:
        executor = (KubernetesExecutor if stock else GuardedKubernetesExecutor)()
        executor.parallelism = 100
        executor.job_id = job_id
        executor.start()
        started.append(executor)
        return executor

    yield start
    for executor in started:
        executor.end()
