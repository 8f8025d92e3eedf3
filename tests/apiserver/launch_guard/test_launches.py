# SPDX-License-Identifier: Apache-2.0
"""Pods as a real kube-apiserver has them, created by the real executor for real task instances."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from kubernetes.client import models as k8s

from airflow_steadfast import settings, signals
from airflow_steadfast.launch_guard import worker_pod
from tests.support.worker_pods import RUNNING_KEYS_WAIT, creates, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def test_three_stale_and_two_fresh_are_two_pods(tasks, start_executor, pods, cluster, namespace):
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:5]))
    tasks.clear(ids[:1])
    tasks.change(ids[1:2], state="success")
    tasks.change(ids[2:3], queued_by_job_id=2)
    for _ in range(3):
        executor.heartbeat()
    assert task_ids(pods()) == ["task_3", "task_4"]
    assert creates(cluster, namespace) == [201, 201]
    assert total("launches_decided_total") == 5


def test_both_creation_paths_are_guarded(concurrent, tasks, start_executor, pods):
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:5]))
    tasks.change(ids[:3], state="success")
    executor.heartbeat()
    assert task_ids(pods()) == ["task_3", "task_4"]


def set_quota(cluster, namespace, allowed):
    """A ResourceQuota with the status that the controller would give it; no controller runs here."""
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


def test_what_a_quota_refused_and_a_user_cleared_gets_no_pod(tasks, start_executor, pods, cluster, namespace):
    executor = start_executor()
    ids = tasks.run()
    set_quota(cluster, namespace, 0)
    submit(executor, tasks.queue(ids))
    executor.heartbeat()
    assert pods() == []
    assert creates(cluster, namespace) == [403] * len(ids)

    fresh = tasks.clear(ids)
    submit(executor, tasks.queue(fresh))
    if RUNNING_KEYS_WAIT:
        executor.heartbeat()  # frees the keys
    set_quota(cluster, namespace, 4)
    executor.heartbeat()
    assert len(pods()) == 4
    # where a clear keeps the id (before Airflow 3.1) it is the order that was replaced
    reasons = ("task_instance_missing", "superseded")
    assert sum(total("workloads_dropped_total", reason=reason) for reason in reasons) == len(ids)
    set_quota(cluster, namespace, 100)
    executor.heartbeat()
    assert len(pods()) == len(fresh)
    assert creates(cluster, namespace).count(201) == len(fresh)
    assert total("launches_decided_total") == 2 * len(ids)


@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_a_requeue_by_the_same_scheduler_makes_one_pod(stock, tasks, start_executor, pods):
    executor = start_executor(stock=stock)
    ids = tasks.run()
    for _ in range(2):
        submit(executor, tasks.queue(ids[:1]))
        executor.trigger_tasks(100)
    executor.heartbeat()
    assert len(pods()) == (2 if stock and not RUNNING_KEYS_WAIT else 1)


MOUNTED = """
apiVersion: v1
kind: Pod
metadata: {name: template}
spec:
  restartPolicy: Never
  containers:
    - name: base
      image: "docker.io/apache/airflow:3.3.2"
      env: [{name: PYTHONPATH, value: /opt/steadfast}]
      volumeMounts: [{name: code, mountPath: /opt/steadfast}]
  volumes: [{name: code, configMap: {name: code}}]
"""


@pytest.mark.parametrize("inject", ["auto", "off"])
def test_a_pod_of_another_template_is_given_the_patch_or_counted(
    inject, concurrent, tasks, start_executor, pods, monkeypatch, tmp_path
):
    monkeypatch.setattr(worker_pod, "mounted_root", lambda: PurePosixPath("/opt/steadfast"))
    monkeypatch.setenv("AIRFLOW__STEADFAST__INJECT", inject)
    settings.reset()
    (tmp_path / "mounted.yaml").write_text(MOUNTED)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(tmp_path / "mounted.yaml"))
    executor = start_executor()
    (order,) = tasks.queue(tasks.run()[:1])
    order.ti.executor_config = {"pod_template_file": str(tmp_path / "template.yaml")}
    submit(executor, [order])
    executor.heartbeat()
    (pod,) = pods()
    assert worker_pod.carries_patch(pod, PurePosixPath("/opt/steadfast")) is (inject == "auto")
    assert total("worker_pods_unpatched_total") == (0 if inject == "auto" else 1)


@pytest.mark.parametrize("mounted", [True, False])
def test_pods_of_a_template_without_the_patch_are_counted_when_created(
    mounted, tasks, start_executor, pods, cluster, namespace, monkeypatch, tmp_path
):
    monkeypatch.setattr(worker_pod, "mounted_root", lambda: PurePosixPath("/opt/steadfast"))
    if mounted:
        (tmp_path / "mounted.yaml").write_text(MOUNTED)
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(tmp_path / "mounted.yaml"))
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    set_quota(cluster, namespace, 0)
    executor.heartbeat()
    assert total("worker_pods_unpatched_total") == 0
    set_quota(cluster, namespace, 2)
    executor.heartbeat()
    assert len(pods()) == 2
    assert total("worker_pods_unpatched_total") == (0 if mounted else 2)
