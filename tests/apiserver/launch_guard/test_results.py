# SPDX-License-Identifier: Apache-2.0
"""A pod's end is its own launch's: deferred and rescheduled tasks, requeues, kept pods, reused keys."""

from __future__ import annotations

import pytest

from airflow_steadfast import signals
from tests.support.worker_pods import (
    HAS_REQUEUE,
    beat,
    needs_requeue,
    needs_two_launches_of_a_key,
    play,
    states,
    submit,
    task_ids,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def launched(executor, tasks, pods, ids):
    """Queue and launch; return the pods that are new."""
    before = {pod.metadata.uid for pod in pods()}
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    return [pod for pod in pods() if pod.metadata.uid not in before]


def gone(pods, *these):
    names = {pod.metadata.name for pod in these}
    return lambda: not names & {pod.metadata.name for pod in pods()}


@needs_two_launches_of_a_key
@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_the_end_of_a_stale_pod_is_not_the_end_of_the_live_one(
    stock, tasks, start_executor, pods, cluster, monkeypatch
):
    """The run is deleted and triggered again under its run id: other task instances, the same keys."""
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE", "True")
    executor = start_executor(stock=stock)
    ids = tasks.run("again")[:1]
    (stale,) = launched(executor, tasks, pods, ids)
    tasks.delete_run("again")
    fresh = tasks.run("again")[:1]
    (live,) = launched(executor, tasks, pods, fresh)
    executor.event_buffer.clear()

    play(cluster, stale, "Failed", "Error")
    beat(executor, gone(pods, stale))
    if stock:
        assert states(executor) == {"task_0": "failed"}
        assert executor.running == set()
        return
    assert states(executor) == {}
    assert len(executor.running) == 1

    play(cluster, live, "Failed", "Error")
    beat(executor, gone(pods, live))
    assert states(executor) == {"task_0": "failed"}
    assert executor.running == set()


@pytest.mark.parametrize("keep", [False, True], ids=["deleted", "kept"])
@pytest.mark.parametrize("between", ["deferred", "up_for_reschedule"])
def test_a_task_that_comes_back_gets_a_pod_each_time(
    keep, between, tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS", str(not keep))
    executor = start_executor()
    ids = tasks.run()[:1]
    names = set()
    for number in range(4):
        (pod,) = launched(executor, tasks, pods, ids)
        names.add(pod.metadata.name)
        tasks.change(ids, state="running")
        tasks.change(ids, state=between if number < 3 else "success")
        play(cluster, pod, "Succeeded")
        beat(executor, lambda: not executor.running)
    assert len(names) == 4
    assert len(pods()) == (4 if keep else 0)
    assert states(executor) == {"task_0": "success"}


def test_it_gets_its_pod_also_after_a_restart_of_the_scheduler(
    tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS", "False")
    ids = tasks.run()[:1]
    for number in range(3):
        executor = start_executor()
        (pod,) = launched(executor, tasks, pods, ids)
        tasks.change(ids, state="up_for_reschedule")
        play(cluster, pod, "Succeeded")
        beat(executor, lambda running=executor.running: not running)
        assert len(pods()) == number + 1


@needs_two_launches_of_a_key
def test_the_next_launch_is_queued_before_the_last_pod_has_ended(tasks, start_executor, pods, cluster):
    """A fast trigger: the resumed task instance is queued, and launched, while its first pod still ends."""
    executor = start_executor()
    ids = tasks.run()[:1]
    (first,) = launched(executor, tasks, pods, ids)
    tasks.change(ids, state="deferred")
    (second,) = launched(executor, tasks, pods, ids)
    play(cluster, first, "Succeeded")
    beat(executor, gone(pods, first))
    assert states(executor) == {}
    assert len(executor.running) == 1
    tasks.change(ids, state="success")
    play(cluster, second, "Succeeded")
    beat(executor, gone(pods, second))
    assert states(executor) == {"task_0": "success"}
    assert executor.running == set()


@needs_two_launches_of_a_key
@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_a_pod_killed_after_its_task_deferred_does_not_launch_the_resumed_one_twice(
    stock, tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE", "True")
    executor = start_executor(stock=stock)
    ids = tasks.run()[:1]
    (first,) = launched(executor, tasks, pods, ids)
    tasks.change(ids, state="deferred")
    submit(executor, tasks.queue(ids))
    play(cluster, first, "Failed", "OOMKilled")
    beat(executor, gone(pods, first))
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert len(task_ids(pods())) == (2 if stock and HAS_REQUEUE else 1)


@needs_requeue
@pytest.mark.parametrize("forced", [False, True], ids=["derived", "forced"])
def test_a_pod_that_dies_before_its_task_begins_is_replaced_once(
    forced, tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS_ON_FAILURE", "True")
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "2")
    if forced:

        def hook(pod):
            pod.metadata.name = "always-the-same"

        monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    executor = start_executor()
    ids = tasks.run()[:1]
    (pod,) = launched(executor, tasks, pods, ids)
    for _ in range(2):
        last = pod
        play(cluster, last, "Failed", "ContainerCannotRun")
        beat(
            executor, lambda last=last: [one.metadata.uid for one in pods()] not in ([], [last.metadata.uid])
        )
        beat(executor, lambda: executor.task_queue.qsize() == 0)
        (pod,) = pods()
        assert (pod.metadata.name == last.metadata.name) is forced
        assert len(executor.running) == 1
        assert states(executor) == {}
    play(cluster, pod, "Failed", "ContainerCannotRun")
    beat(executor, lambda: not executor.running)
    assert states(executor) == {"task_0": "failed"}


def test_a_pod_whose_create_is_in_doubt_reports_itself(proxy, tasks, start_executor, pods, cluster):
    from tests.support.fault_proxy import Fault, refusal

    executor = start_executor()
    ids = tasks.run()[:1]
    proxy.add(Fault("drop_reply", forward=True, count=1))
    proxy.add(refusal(500, method="GET", path=r"/pods/[^/]+$"))
    refused = proxy.add(refusal(500))
    submit(executor, tasks.queue(ids))
    beat(executor)
    (pod,) = pods()
    assert executor.task_queue.qsize() == 1
    tasks.change(ids, state="success")
    # the database says that it ran; the watcher says so first
    executor.task_queue.pause_until(float("inf"))
    play(cluster, pod, "Succeeded")
    beat(executor, lambda: not executor.running)
    assert executor.task_queue.qsize() == 0
    assert states(executor) == {"task_0": "success"}
    assert proxy.hits(refused) == 0


@needs_two_launches_of_a_key
def test_the_end_that_came_while_a_copy_was_queued_is_told_when_the_copy_is_dropped(
    tasks, start_executor, pods, cluster
):
    """A copy that goes stale in the queue never ran: what its key stands for is the pod before it."""
    executor = start_executor()
    ids = tasks.run()[:1]
    (pod,) = launched(executor, tasks, pods, ids)
    executor.task_queue.pause_until(executor.task_queue.now() + 3600)
    submit(executor, tasks.queue(ids))
    beat(executor)
    tasks.change(ids, state="running")
    play(cluster, pod, "Failed", "OOMKilled")
    beat(executor, lambda: bool(executor._steadfast_guard.results._withheld))
    assert states(executor) == {}
    executor.task_queue._paused_until = 0.0
    beat(executor, lambda: not executor.running)
    assert states(executor) == {"task_0": "failed"}
