# SPDX-License-Identifier: Apache-2.0
"""Names of worker pods: derived, taken, forced by pod_override or the mutation hook, and long ones."""

from __future__ import annotations

import uuid

import pytest
from kubernetes.client import models as k8s

from airflow_steadfast import signals
from airflow_steadfast.kube import pods as pod_facts
from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, play, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


@pytest.fixture
def forced(monkeypatch):
    """The mutation hook calls every pod by its task alone."""

    def hook(pod):
        pod.metadata.name = f"forced-{pod.metadata.annotations['task_id'].replace('_', '-')}"

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)


def make(cluster, namespace, name, *, labels=None, annotations=None, finalizers=None):
    return cluster.client().create_namespaced_pod(
        namespace,
        k8s.V1Pod(
            metadata=k8s.V1ObjectMeta(
                name=name, labels=labels, annotations=annotations, finalizers=finalizers
            ),
            spec=k8s.V1PodSpec(
                containers=[k8s.V1Container(name="base", image="none")],
                automount_service_account_token=False,
            ),
        ),
    )


def names(pods):
    return sorted(pod.metadata.name for pod in pods())


def test_long_ids_make_names_of_at_most_63_characters(tasks, start_executor, pods, database):
    from tests.support.queued_tasks import QueuedTasks

    long = QueuedTasks(dag_id="a_dag_with_a_very_long_name_indeed_" * 3, size=2)
    executor = start_executor()
    submit(executor, long.queue(long.run()))
    beat(executor)
    assert len(set(names(pods))) == 2
    assert all(len(name) == 63 for name in names(pods))


def test_a_derived_name_that_is_taken_is_numbered(
    concurrent, tasks, start_executor, pods, cluster, namespace, monkeypatch
):
    from airflow_steadfast.launch_guard.launch import LaunchId

    monkeypatch.setattr(LaunchId, "digest", lambda _: "samesuffix")
    for suffix in ("", "-2"):
        make(cluster, namespace, f"guarded-task-0-samesuffix{suffix}")
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:2]))
    beat(executor)
    assert names(pods)[2:] == ["guarded-task-0-samesuffix-3", "guarded-task-1-samesuffix"]
    assert states(executor) == {}
    assert total("pods_adopted_total") == 0


def test_a_name_forced_by_pod_override_is_respected(tasks, start_executor, pods):
    executor = start_executor()
    (order,) = tasks.queue(tasks.run()[:1])
    override = k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="my-own-name"))
    order.ti.executor_config = {"pod_override": override}
    submit(executor, [order])
    beat(executor)
    (pod,) = pods()
    assert pod.metadata.name == "my-own-name"
    assert pod_facts.annotation(pod, pod_facts.LAUNCH_ANNOTATION) is not None


def test_under_a_forced_name_a_lost_reply_is_one_pod(forced, concurrent, proxy, tasks, start_executor, pods):
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:2])
    proxy.add(Fault("drop_reply", forward=True, count=2))
    proxy.add(refusal(500, method="GET", path=r"/pods/[^/]+$", count=2))
    submit(executor, workloads)
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert names(pods) == ["forced-task-0", "forced-task-1"]
    assert states(executor) == {}
    assert total("pods_adopted_total") == 2


def test_under_a_random_name_of_the_hook_a_lost_reply_is_one_pod(
    concurrent, proxy, tasks, start_executor, pods, monkeypatch
):
    def hook(pod):
        pod.metadata.name = f"random-{uuid.uuid4()}"

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:2])
    proxy.add(Fault("drop_reply", forward=True, count=2))
    proxy.add(refusal(500, method="GET", path=r"/pods/[^/]+$", count=3))
    submit(executor, workloads)
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert task_ids(pods()) == ["task_0", "task_1"]
    assert states(executor) == {}
    assert total("pods_adopted_total") == 2


def test_a_forced_name_of_a_stranger_is_left_to_the_executors_rule(
    forced, concurrent, tasks, start_executor, pods, cluster, namespace
):
    stranger = make(cluster, namespace, "forced-task-0")
    play(cluster, stranger, "Succeeded")
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:1]))
    beat(executor)
    assert states(executor) == {"task_0": "failed"}
    assert [pod.metadata.uid for pod in pods()] == [stranger.metadata.uid]
    assert executor.running == set()


def test_a_forced_name_is_waited_for_while_its_pod_is_on_its_way_out(
    forced, concurrent, tasks, start_executor, pods, cluster, namespace
):
    leaving = make(cluster, namespace, "forced-task-0", finalizers=["tests/hold"])
    cluster.client().delete_namespaced_pod("forced-task-0", namespace)
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:1]))
    for _ in range(3):
        beat(executor)
    assert executor.task_queue.qsize() == len(executor.running) == 1
    cluster.client().patch_namespaced_pod("forced-task-0", namespace, {"metadata": {"finalizers": None}})
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    (pod,) = pods()
    assert pod.metadata.uid != leaving.metadata.uid
    assert states(executor) == {}


def test_a_kept_pod_of_an_earlier_launch_makes_way_for_a_forced_name(
    forced, concurrent, tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS", "False")
    executor = start_executor()
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    beat(executor)
    (first,) = pods()
    tasks.change(ids, state="up_for_reschedule")
    play(cluster, first, "Succeeded")
    beat(executor, lambda: not executor.running)
    executor.event_buffer.clear()

    submit(executor, tasks.queue(ids))
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    (second,) = pods()
    assert second.metadata.uid != first.metadata.uid
    for _ in range(5):
        beat(executor)
    assert len(executor.running) == 1
    assert states(executor) == {}
