# SPDX-License-Identifier: Apache-2.0
"""Exactly one pod per launch, whatever becomes of the create and of its answer."""

from __future__ import annotations

import functools

import pytest

from airflow_steadfast import settings, signals
from airflow_steadfast.kube import pods as pod_facts
from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, creates, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

STORED = {
    "reply_lost": Fault("drop_reply", forward=True, count=3),
    "500_stored": refusal(500, forward=True, count=3),
    "504_stored": refusal(504, forward=True, count=3),
}
NOT_STORED = {
    "reset": Fault("reset", count=3),
    "500": refusal(500, count=3),
    "502": refusal(502, count=3),
    "503": refusal(503, retry_after=1, count=1),
    "504": refusal(504, count=3),
    "429": refusal(429, retry_after=1, count=1),
    "quota": refusal(403, count=3),
}
FAULTS = {**STORED, **NOT_STORED}


def handles_lost_replies():
    from airflow.providers.cncf.kubernetes.executors import kubernetes_executor

    return hasattr(kubernetes_executor, "TRANSIENT_CONNECTION_ERRORS")


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


@pytest.mark.parametrize("name", FAULTS)
def test_a_create_that_failed_or_not_is_one_pod(
    name, concurrent, proxy, tasks, start_executor, pods, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES", "0")
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:3])
    proxy.add(FAULTS[name])
    submit(executor, workloads)
    beat(executor, lambda: len(pods()) == 3 and executor.task_queue.qsize() == 0)
    beat(executor)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]
    assert len(executor.running) == 3
    assert states(executor) == {}
    assert total("pods_adopted_total") == (3 if name in STORED else 0)
    assert total("launches_decided_total") == 3


@pytest.mark.skipif(not handles_lost_replies(), reason="this provider's scheduler dies of a lost reply")
@pytest.mark.parametrize(("retries", "outcome"), [("0", (3, 3)), ("1", (6, 0))])
def test_upstream_fails_tasks_whose_pods_run_or_makes_second_pods(
    retries, outcome, proxy, tasks, start_executor, pods, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES", retries)
    executor = start_executor(stock=True)
    workloads = tasks.queue(tasks.run()[:3])
    proxy.add(STORED["reply_lost"])
    submit(executor, workloads)
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    beat(executor)
    failed = [state for state in states(executor).values() if state == "failed"]
    assert (len(pods()), len(failed)) == outcome


def test_a_pod_says_which_launch_it_is_of_and_is_named_after_it(tasks, start_executor, pods):
    executor = start_executor()
    (ti_id,) = ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    beat(executor)
    (pod,) = pods()
    entry = executor.task_queue.launches.current(next(iter(executor.running)))
    assert pod_facts.annotation(pod, pod_facts.LAUNCH_ANNOTATION) == entry.launch_id.text()
    assert ti_id in entry.launch_id.text()
    assert pod.metadata.name == f"guarded-task-0-{entry.launch_id.digest()}"


def test_while_the_server_asks_to_be_left_alone_it_is(proxy, tasks, start_executor, pods, cluster, namespace):
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:5])
    number = proxy.add(refusal(429, retry_after=300))
    submit(executor, workloads)
    for _ in range(5):
        executor.heartbeat()
    assert proxy.hits(number) == 1
    assert executor.task_queue.qsize() == 5
    assert len(executor.running) == 5


@pytest.mark.parametrize("fault", ["quota", "504"])
def test_after_the_budget_the_executors_own_rule_decides(
    fault, concurrent, proxy, tasks, start_executor, pods, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES", "0")
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CREATE_RETRY", "0")
    settings.reset()
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:2])
    proxy.add(refusal({"quota": 403, "504": 504}[fault]))
    submit(executor, workloads)
    beat(executor)
    assert states(executor) == {"task_0": "failed", "task_1": "failed"}
    assert executor.running == set()
    assert pods() == []


def test_without_a_budget_a_lost_reply_is_still_one_pod(
    concurrent, proxy, tasks, start_executor, pods, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CREATE_RETRY", "0")
    settings.reset()
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:3])
    proxy.add(STORED["reply_lost"])
    if handles_lost_replies():  # its rule queues the launch again, without knowing of the pod
        proxy.add(refusal(500, method="GET", path=r"/pods/[^/]+$", count=3))
    submit(executor, workloads)
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]
    assert states(executor) == {}


def test_a_pod_seen_only_later_is_met_by_the_repeated_create(
    proxy, tasks, start_executor, pods, cluster, namespace
):
    executor = start_executor()
    workloads = tasks.queue(tasks.run()[:3])
    proxy.add(STORED["reply_lost"])
    proxy.add(refusal(503, method="GET", path=r"/pods/[^/]+$", count=3))
    submit(executor, workloads)
    beat(executor)
    assert executor.task_queue.qsize() == 3
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]
    assert creates(cluster, namespace) == [201, 201, 201, 409, 409, 409]
    assert total("pods_adopted_total") == 3


class SurpriseError(Exception):
    """Something that no executor's loop expects."""


@pytest.mark.parametrize("where", ["construct_pod", "run_pod_async"])
def test_an_error_that_nobody_expects_fails_its_launch_and_nothing_else(
    where, tasks, start_executor, pods, monkeypatch
):
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import (
        AirflowKubernetesScheduler,
        PodGenerator,
    )

    owner = AirflowKubernetesScheduler if where == "run_pod_async" else PodGenerator
    native = getattr(owner, where)

    @functools.wraps(native)
    def surprise(*arguments, **options):
        pod = arguments[-1] if where == "run_pod_async" else None
        if (pod.metadata.annotations if pod else options)["task_id"] == "task_1":
            raise SurpriseError
        return native(*arguments, **options)

    monkeypatch.setattr(owner, where, surprise)
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:3]))
    beat(executor)
    assert task_ids(pods()) == ["task_0", "task_2"]
    assert states(executor) == {"task_1": "failed"}
    assert {key.task_id for key in executor.running} == {"task_0", "task_2"}


def test_a_batch_that_fails_as_a_whole_loses_nothing(concurrent, tasks, start_executor, pods, monkeypatch):
    if not concurrent:
        return  # one by one there is no batch
    executor = start_executor()
    launcher = type(executor.kube_scheduler)
    native = launcher._run_pods_async
    surprises = [SurpriseError(), SurpriseError()]

    def surprise(self, items):
        if surprises:
            raise surprises.pop()
        return native(self, items)

    monkeypatch.setattr(launcher, "_run_pods_async", surprise)
    submit(executor, tasks.queue(tasks.run()[:3]))
    beat(executor)
    assert executor.task_queue.qsize() == len(executor.running) == 3
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]


def test_a_failure_of_the_guard_leaves_the_pod_to_the_provider(tasks, start_executor, pods, monkeypatch):
    from airflow_steadfast.launch_guard import attempt

    def surprise(*_):
        raise SurpriseError

    monkeypatch.setattr(attempt.Attempts, "begin", surprise)
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:3]))
    beat(executor)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]
    assert all(pod_facts.annotation(pod, pod_facts.LAUNCH_ANNOTATION) is None for pod in pods())
    assert total("launch_check_errors_total", reason="internal_error") == 3
    assert len(executor.running) == 3
