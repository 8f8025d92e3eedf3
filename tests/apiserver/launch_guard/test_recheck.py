# SPDX-License-Identifier: Apache-2.0
"""The check after creation deletes what went stale meanwhile, and never a healthy task's pod."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.snapshot import Snapshot, SnapshotError
from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, play, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

NOW = datetime.now(timezone.utc)


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def between(executor, act):
    """Have ``act`` happen after the pods were created and before they are looked at again."""
    recheck = executor._steadfast_guard._recheck
    look, acts = recheck._look, [act]

    def act_and_look():
        if acts:
            acts.pop()()
        look()

    recheck._look = act_and_look


VOID = {
    "cleared": lambda tasks, ids: tasks.clear(ids),
    "run_deleted": lambda tasks, _: tasks.delete_run("run_1"),
    "requeued": lambda tasks, ids: tasks.change(ids, state="scheduled"),
    "requeued_already": lambda tasks, ids: tasks.change(ids, queued_dttm=NOW),
    "next_try": lambda tasks, ids: tasks.change(ids, try_number=2),
    "without_state": lambda tasks, ids: tasks.change(ids, state=None),
}
HEALTHY = {
    "running": lambda tasks, ids: tasks.change(ids, state="running"),
    "running_for_another_scheduler": lambda tasks, ids: tasks.change(
        ids, state="running", queued_by_job_id=2
    ),
    "adopted_by_another_scheduler": lambda tasks, ids: tasks.change(ids, queued_by_job_id=2),
    "done_already": lambda tasks, ids: tasks.change(ids, state="success"),
    "failed_already": lambda tasks, ids: tasks.change(ids, state="up_for_retry"),
    "deferred_already": lambda tasks, ids: tasks.change(ids, state="deferred"),
    "untouched": lambda tasks, ids: None,
}


@pytest.mark.parametrize("what", VOID)
def test_a_pod_of_a_launch_gone_stale_during_creation_is_deleted(
    what, concurrent, tasks, start_executor, pods
):
    executor = start_executor()
    ids = tasks.run()[:3]
    submit(executor, tasks.queue(ids))
    executor.trigger_tasks(100)
    between(executor, lambda: VOID[what](tasks, ids[:1]))
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    expected = [] if what == "run_deleted" else ["task_1", "task_2"]
    assert task_ids(pods()) == expected
    assert total("pods_revoked_total") == 3 - len(expected)
    assert {key.task_id for key in executor.running} == set(expected)
    for _ in range(5):
        beat(executor)
    assert states(executor) == {}


@pytest.mark.parametrize("what", HEALTHY)
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_healthy_pod_is_never_deleted(what, phase, concurrent, tasks, start_executor, pods, cluster):
    """The worker may have started, and more, while the kubelet has not said so yet."""
    executor = start_executor()
    ids = tasks.run()[:3]
    submit(executor, tasks.queue(ids))

    def act():
        for pod in pods():
            play(cluster, pod, phase)
        HEALTHY[what](tasks, ids)

    between(executor, act)
    beat(executor)
    assert task_ids(pods()) == ["task_0", "task_1", "task_2"]
    assert total("pods_revoked_total") == 0
    assert len(executor.running) == 3


def test_a_stale_pod_that_has_started_is_left_alone_and_its_end_is_told(tasks, start_executor, pods, cluster):
    executor = start_executor()
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))

    def act():
        play(cluster, pods()[0], "Running")
        tasks.change(ids, queued_dttm=NOW)

    between(executor, act)
    beat(executor)
    (pod,) = pods()
    assert "airflow_pod_revoked" not in pod.metadata.labels
    assert total("pods_revoked_total") == 0
    tasks.change(ids, state="success")
    play(cluster, pod, "Succeeded")
    beat(executor, lambda: not executor.running)
    assert states(executor) == {"task_0": "success"}


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_pod_that_starts_while_it_is_being_revoked_stays(
    method, proxy, tasks, start_executor, pods, cluster
):
    executor = start_executor()
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    between(executor, lambda: tasks.change(ids, queued_dttm=NOW))
    guard = executor._steadfast_guard
    name = {"PATCH": "patch_namespaced_pod", "DELETE": "delete_namespaced_pod"}[method]
    from airflow_steadfast.kube import reader

    once = reader.impatient(executor.kube_scheduler.kube_client)
    native, starts = getattr(once, name), [True]

    def start_and(*args, **kwargs):
        if starts:
            starts.pop()
            play(cluster, pods()[0], "Running")
        return native(*args, **kwargs)

    setattr(once, name, start_and)
    guard._revoker._own_api = once
    beat(executor)
    (pod,) = pods()
    assert pod.status.phase == "Running"
    assert "airflow_pod_revoked" not in pod.metadata.labels
    assert total("pods_revoked_total") == 0
    assert len(executor.running) == 1


def test_while_the_api_server_fails_it_is_tried_again(proxy, tasks, start_executor, pods):
    executor = start_executor()
    ids = tasks.run()[:2]
    submit(executor, tasks.queue(ids))
    between(executor, lambda: tasks.clear(ids[:1]))
    proxy.add(refusal(500, method="DELETE", path=r"/pods/[^/]+$", count=2))
    beat(executor, lambda: len(pods()) == 1)
    beat(executor)
    assert task_ids(pods()) == ["task_1"]
    assert total("pods_revoked_total") == 1
    assert len(executor.running) == 1


def test_without_an_answer_of_the_database_pods_are_left_alone(tasks, start_executor, pods, monkeypatch):
    executor = start_executor()
    ids = tasks.run()[:2]
    submit(executor, tasks.queue(ids))
    read = Snapshot.read
    answers = [read]

    def once(self, keys):
        if not answers:
            raise SnapshotError("database_error", "down")
        return answers.pop()(self, keys)

    monkeypatch.setattr(Snapshot, "read", once)
    tasks.change(ids[1:], state="queued")
    beat(executor)
    assert len(pods()) == len(executor.running) == 2
    assert total("launch_check_errors_total", reason="database_error") == 2
    monkeypatch.setattr(Snapshot, "read", read)
    beat(executor)
    assert len(pods()) == 2


def test_a_loop_costs_two_selects_and_an_idle_one_none(tasks, start_executor, monkeypatch):
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()))
    reads = []
    read = Snapshot.read
    monkeypatch.setattr(Snapshot, "read", lambda self, keys: (reads.append(keys), read(self, keys))[1])
    executor._steadfast_guard._recheck._clock = lambda: 0.0
    beat(executor)
    assert executor.task_queue.qsize() == 0
    assert len(reads) == 2
    beat(executor)
    assert len(reads) == 2


def test_a_dropped_launch_whose_create_was_in_doubt_leaves_no_pod(proxy, tasks, start_executor, pods):
    """Its pod would be the one that runs, or whose end fails the one that runs."""
    executor = start_executor()
    ids = tasks.run()[:1]
    proxy.add(Fault("drop_reply", forward=True, count=1))
    unread = proxy.add(refusal(500, method="GET", path=r"/pods/[^/]+$"))
    submit(executor, tasks.queue(ids))
    beat(executor)
    (in_doubt,) = pods()
    proxy.remove(unread)
    executor.task_queue.pause_until(executor.task_queue.now() + 3600)
    submit(executor, tasks.queue(ids))
    executor.trigger_tasks(100)
    executor.task_queue._paused_until = 0.0
    beat(executor, lambda: in_doubt.metadata.name not in {pod.metadata.name for pod in pods()})
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert task_ids(pods()) == ["task_0"]
    assert len(executor.running) == 1
