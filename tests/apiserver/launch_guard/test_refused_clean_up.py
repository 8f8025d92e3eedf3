# SPDX-License-Identifier: Apache-2.0
"""The API server refuses what ends a pod's life: the scheduler's loop goes on, and the end is told later."""

from __future__ import annotations

import time

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.support import airflow_lines
from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, play, states, submit

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

ONE_POD = r"/pods/[^/]+$"
REVOKED = "airflow_pod_revoked"


@pytest.mark.parametrize(
    "fault",
    [refusal(500, method="DELETE", path=ONE_POD), Fault("reset", method="DELETE", path=ONE_POD)],
    ids=["refused", "reset"],
)
def test_the_loop_goes_on_while_finished_pods_cannot_be_deleted(
    fault, proxy, tasks, start_executor, pods, cluster
):
    executor = start_executor()
    ids = tasks.run()[:4]
    submit(executor, tasks.queue(ids[:3]))
    beat(executor, lambda: len(pods()) == 3)
    executor.event_buffer.clear()
    number = proxy.add(fault)
    for pod in pods():
        play(cluster, pod, "Succeeded")
    started = time.monotonic()
    for _ in range(20):
        beat(executor)
    submit(executor, tasks.queue(ids[3:]))
    beat(executor, lambda: len(pods()) == 4)  # others are launched meanwhile
    assert time.monotonic() - started < 60
    assert len(executor.running) == 4
    proxy.remove(number)
    beat(executor, lambda: len(pods()) == 1)
    beat(executor, lambda: len(executor.running) == 1)
    assert states(executor) == {}  # nothing failed


def test_what_could_not_be_worked_off_is_not_lost_at_the_end(proxy, tasks, start_executor, pods, cluster):
    executor = start_executor()
    submit(executor, tasks.queue(tasks.run()[:1]))
    beat(executor, lambda: len(pods()) == 1)
    number = proxy.add(refusal(500, method="DELETE", path=ONE_POD))
    play(cluster, pods()[0], "Succeeded")
    beat(executor, lambda: executor._steadfast_guard.results._refused != [])
    executor._flush_task_queue()
    assert executor.result_queue.qsize() == 1
    proxy.remove(number)


def test_a_pod_marked_as_revoked_by_a_scheduler_that_died_is_seen_after_its_adoption(
    tasks, start_executor, pods, cluster
):
    former = start_executor(job_id=1)
    ids = tasks.run()[:1]
    submit(former, tasks.queue(ids))
    beat(former, lambda: len(pods()) == 1)
    (pod,) = pods()
    body = {"metadata": {"labels": {REVOKED: "True"}}}
    cluster.client().patch_namespaced_pod(pod.metadata.name, pod.metadata.namespace, body)
    executor = start_executor(job_id=2)
    with create_session() as session:
        rows = list(session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids))))
        assert executor.try_adopt_task_instances(rows) == []
    assert REVOKED not in pods()[0].metadata.labels
    assert len(executor.running) == 1
    play(cluster, pods()[0], "Succeeded")
    beat(executor, lambda: not executor.running)
