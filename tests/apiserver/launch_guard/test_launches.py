# SPDX-License-Identifier: Apache-2.0
"""Pods as a real kube-apiserver has them, created by the real executor for real task instances."""

from __future__ import annotations

import pytest

from airflow_steadfast import signals
from tests.support.worker_pods import RUNNING_KEYS_WAIT, creates, set_quota, submit, task_ids

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
