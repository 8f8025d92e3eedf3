# SPDX-License-Identifier: Apache-2.0
"""A workload whose launch token expired in the queue is launched with one that the API server accepts."""

from __future__ import annotations

import time

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import token as tokens
from tests.support.airflow_lines import HAS_WORKLOADS, submit, with_ids

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.postgres,
    pytest.mark.skipif(not HAS_WORKLOADS, reason="Airflow 2 has no launch tokens"),
]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


@pytest.fixture(autouse=True)
def signing_key(monkeypatch):
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of the test's own " * 3)
    monkeypatch.setenv("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", "600")


def with_token(workload, executor, seconds):
    """The workload with a token as the scheduler makes it, issued so that it is good for ``seconds`` more."""
    from airflow.executors.workloads import ExecuteTask

    with create_session() as session, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", str(seconds))
        generator = executor.jwt_generator
        before, generator.valid_for = generator.valid_for, seconds
        row = session.scalar(select(TaskInstance).where(with_ids([str(workload.ti.id)])))
        made = ExecuteTask.make(row, generator=generator)
        generator.valid_for = before
    return workload.model_copy(update={"token": made.token})


def accepted(token):
    """The claims, if the execution API's own validator accepts the token."""
    from airflow.api_fastapi.execution_api.app import _jwt_validator

    return _jwt_validator().validated_claims(token)


def enqueue(executor, workloads):
    submit(executor, workloads)
    executor.trigger_tasks(100)


def test_an_expired_token_is_renewed_and_the_api_server_accepts_it(tasks, start_executor):
    import jwt

    executor = start_executor()
    ids = tasks.run()
    stale, fresh = tasks.queue(ids[:2])
    old = with_token(stale, executor, -60)
    good = with_token(fresh, executor, 600)
    with pytest.raises(jwt.ExpiredSignatureError):
        accepted(old.token)
    enqueue(executor, [old, good])
    executor.sync()

    launched = {str(job.command[0].ti.id): job for job in executor.kube_scheduler.launched}
    assert set(launched) == set(ids[:2])
    assert launched[ids[1]].command[0].token == good.token
    renewed = launched[ids[0]].command[0]
    was, now = accepted(good.token), accepted(renewed.token)
    assert now["sub"] == ids[0]
    # what the scheduler puts into one, of whatever this Airflow does: scope, audience, length of life
    same = {"scope", "aud", "iss"}
    assert {name: now.get(name) for name in same} == {name: was.get(name) for name in same}
    assert now["exp"] - now["iat"] == was["exp"] - was["iat"]
    assert renewed.model_copy(update={"token": old.token}) == old
    assert total("workloads_dropped_total", reason="token_expired") == 1
    assert total("launches_decided_total") == 2
    assert len(executor.running) == 2


def test_upstream_launches_with_the_expired_token(tasks, start_executor):
    import jwt

    executor = start_executor(stock=True)
    (workload,) = tasks.queue(tasks.run()[:1])
    enqueue(executor, [with_token(workload, executor, -60)])
    executor.sync()
    (job,) = executor.kube_scheduler.launched
    with pytest.raises(jwt.ExpiredSignatureError):
        accepted(job.command[0].token)


def test_a_guard_that_observes_counts_the_expired_token_and_leaves_it(tasks, start_executor, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__LAUNCH_GUARD", "observe")
    executor = start_executor()
    (workload,) = tasks.queue(tasks.run()[:1])
    old = with_token(workload, executor, -60)
    enqueue(executor, [old])
    executor.sync()
    (job,) = executor.kube_scheduler.launched
    assert job.command[0].token == old.token
    assert total("workloads_would_drop_total", reason="token_expired") == 1
    assert total("workloads_dropped_total", reason="token_expired") == 0


def test_a_token_about_to_expire_is_renewed_without_a_drop(tasks, start_executor):
    executor = start_executor()
    (workload,) = tasks.queue(tasks.run()[:1])
    nearly = with_token(workload, executor, 600)
    issued = tokens.claims(nearly.token)["iat"]
    executor._steadfast_guard.queue._renewal._wall = lambda: issued + 500.0
    assert time.time() < issued + 500
    enqueue(executor, [nearly])
    executor.sync()
    (job,) = executor.kube_scheduler.launched
    assert accepted(job.command[0].token)["sub"] == str(workload.ti.id)
    assert job.command[0] is not nearly
    assert total("workloads_dropped_total", reason="token_expired") == 0
    assert total("launches_decided_total") == 1


def test_a_requeue_after_a_pod_that_died_early_has_the_renewed_token(tasks, start_executor):
    executor = start_executor()
    if not hasattr(executor, "pod_launch_attempts"):
        assert not hasattr(KubernetesExecutor, "_is_pre_execution_failure")
        return
    (workload,) = tasks.queue(tasks.run()[:1])
    enqueue(executor, [with_token(workload, executor, -60)])
    executor.sync()
    (job,) = executor.kube_scheduler.launched
    assert executor.pod_launch_attempts[job.key].job is job


def test_what_cannot_be_renewed_is_dropped_and_launched_when_its_scheduler_queues_it_again(
    tasks, start_executor, monkeypatch, caplog
):
    executor = start_executor()
    ids = tasks.run()
    (workload,) = tasks.queue(ids[:1])
    old = with_token(workload, executor, -60)

    def refuse(*_, **__):
        raise OSError("no signing key")

    with monkeypatch.context() as patch:
        patch.setattr(type(executor.jwt_generator), "generate", refuse)
        enqueue(executor, [old])
        executor.sync()
    assert executor.kube_scheduler.launched == []
    assert executor.running == set()
    assert executor.task_queue.qsize() == 0
    assert total("workloads_dropped_total", reason="token_expired") == 1
    assert sum("cannot be renewed" in record.getMessage() for record in caplog.records) == 1

    # as the scheduler does with what has been queued for too long
    (again,) = tasks.queue(ids[:1])
    enqueue(executor, [with_token(again, executor, 600)])
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[:1]


@pytest.mark.parametrize("garbage", ["", "garbage", "a.b.c", "a.bm9wZQ.c"])
def test_a_token_that_cannot_be_read_is_launched_as_it_is(garbage, tasks, start_executor):
    executor = start_executor()
    (workload,) = tasks.queue(tasks.run()[:1])
    enqueue(executor, [workload.model_copy(update={"token": garbage})])
    executor.sync()
    (job,) = executor.kube_scheduler.launched
    assert job.command[0].token == garbage
