# SPDX-License-Identifier: Apache-2.0
"""The scheduler revokes a task instance while the API server fails: it goes on, and no pod is left behind."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from kubernetes.client.exceptions import ApiException
from sqlalchemy import select

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import revocations, stale
from tests.support import airflow_lines
from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

ONE_POD = r"/pods/[^/]+$"
FAULTS = {
    "list_refused": [refusal(503, method="GET", path=r"/pods$", query="labelSelector=airflow-worker")],
    "delete_refused": [refusal(500, method="DELETE", path=ONE_POD)],
    "everything_refused": [
        refusal(500, method="DELETE", path=ONE_POD),
        refusal(500, method="PATCH", path=ONE_POD),
        refusal(503, method="GET", path=r"/pods(/[^/]+)?$", query="^(?!.*watch=)"),
    ],
    "connection_reset": [
        Fault("reset", method="DELETE", path=ONE_POD),
        Fault("reset", method="GET", path=r"/pods(/[^/]+)?$", query="^(?!.*watch=)"),
    ],
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(revocations, "PAUSE", 0.5)
    monkeypatch.setattr(stale, "LONGEST_PAUSE", 0.5)


@contextmanager
def faulty(proxy, faults):
    numbers = [proxy.add(fault) for fault in faults]
    yield
    for number in numbers:
        proxy.remove(number)


def revoke(executor, ids):
    """Revoke as the scheduler does what has been stuck for a while."""
    time.sleep(2.1)  # the server's times, of a pod's creation and of its answer, have whole seconds
    with create_session() as session:
        for row in session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids))):
            executor.revoke_task(ti=row)


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_refused_revocation_ends_no_scheduler_and_is_made_up_for(
    faults, proxy, tasks, start_executor, pods
):
    executor = start_executor()
    ids = tasks.run()[:2]
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: len(pods()) == 2)
    with faulty(proxy, faults):
        revoke(executor, ids[:1])
        assert len(executor.running) == 1
        executor.heartbeat()
    beat(executor, lambda: task_ids(pods()) == ["task_1"])
    assert len(executor.running) == 1


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_pod_of_the_next_launch_stays(faults, proxy, tasks, start_executor, pods):
    executor = start_executor()
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: len(pods()) == 1)
    (old,) = pods()
    with faulty(proxy, faults):
        revoke(executor, ids)
        tasks.change(ids, state="scheduled")
        submit(executor, tasks.queue(ids))
        beat(executor, lambda: any(pod.metadata.uid != old.metadata.uid for pod in pods()))
    beat(executor, lambda: len(pods()) == 1)
    (new,) = pods()
    assert new.metadata.uid != old.metadata.uid
    for _ in range(8):
        beat(executor)
    assert [pod.metadata.uid for pod in pods()] == [new.metadata.uid]
    assert len(executor.running) == 1


def test_the_pod_of_a_scheduler_before_this_one_is_made_up_for_too(proxy, tasks, start_executor, pods):
    """It was adopted: the guard knows no launch of it."""
    former = start_executor(job_id=1)
    ids = tasks.run()[:1]
    submit(former, tasks.queue(ids))
    beat(former, lambda: len(pods()) == 1)
    executor = start_executor(job_id=2)
    with create_session() as session:
        rows = list(session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids))))
        assert executor.try_adopt_task_instances(rows) == []
    with faulty(proxy, FAULTS["everything_refused"]):
        revoke(executor, ids)
    beat(executor, lambda: pods() == [])
    assert signals.totals().value("steadfast_pods_revoked_total") == 1


@pytest.mark.parametrize("status", [500, 503])
def test_upstream_ends_its_scheduler(status, proxy, tasks, start_executor, pods):
    executor = start_executor(stock=True)
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: len(pods()) == 1)
    with faulty(proxy, [refusal(status, method="DELETE", path=ONE_POD)]), pytest.raises(ApiException):
        revoke(executor, ids)
