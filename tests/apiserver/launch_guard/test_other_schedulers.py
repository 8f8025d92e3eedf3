# SPDX-License-Identifier: Apache-2.0
"""Two schedulers, one cluster: adoption, a frozen owner, revoked and stranded task instances."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from airflow.jobs.job import Job
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import stranded
from tests.support import airflow_lines
from tests.support.worker_pods import beat, play, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


@pytest.fixture
def scheduler_jobs(database):
    """Make jobs of schedulers; returns their ids. ``age`` is how long ago they beat, in seconds."""

    def make(*ages):
        with create_session() as session:
            jobs = []
            for age in ages:
                job = Job(job_type="SchedulerJob", state="running")
                job.latest_heartbeat = datetime.now(timezone.utc) - timedelta(seconds=age)
                session.add(job)
                jobs.append(job)
            session.flush()
            return [job.id for job in jobs]

    return make


def adopt(executor, ids):
    """Adopt the task instances as the scheduler does; returns those it must reset."""
    with create_session() as session:
        rows = list(session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids))))
        left = executor.try_adopt_task_instances(rows)
        session.expunge_all()
    return left


def test_a_pod_adopted_by_another_scheduler_ends_there(tasks, start_executor, pods, cluster, scheduler_jobs):
    dead, alive = scheduler_jobs(3600, 0)
    first = start_executor(job_id=dead)
    ids = tasks.run()[:2]
    submit(first, tasks.queue(ids, job_id=dead))
    beat(first)
    second = start_executor(job_id=alive)
    assert adopt(second, ids) == []
    assert {key.task_id for key in second.running} == {"task_0", "task_1"}
    tasks.change(ids, queued_by_job_id=alive)
    beat(first, lambda: not first.running)
    assert states(first) == {}

    tasks.change(ids[:1], state="success")
    for pod in pods():
        play(
            cluster,
            pod,
            "Succeeded" if pod.metadata.annotations["task_id"] == "task_0" else "Failed",
            "Error",
        )
    beat(second, lambda: not second.running)
    assert states(second) == {"task_0": "success", "task_1": "failed"}


def test_a_pod_adopted_back_is_the_executors_own_again(tasks, start_executor, pods, cluster, scheduler_jobs):
    """A scheduler that was frozen lost its pod, was given it again: its old launch says nothing of it."""
    mine, other = scheduler_jobs(0, 3600)
    executor, thief = start_executor(job_id=mine), start_executor(job_id=other)
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids, job_id=mine))
    beat(executor)
    assert adopt(thief, ids) == []
    tasks.change(ids, queued_by_job_id=other)
    beat(executor, lambda: not executor.running)
    tasks.change(ids, queued_by_job_id=other)
    assert adopt(executor, ids) == []
    assert len(executor.running) == 1
    play(cluster, pods()[0], "Failed", "Error")
    beat(executor, lambda: not executor.running)
    assert states(executor) == {"task_0": "failed"}


def test_a_frozen_scheduler_launches_nothing_that_was_reset_meanwhile(tasks, start_executor, pods):
    """Another scheduler takes the orphans over: what the first one has queued is not launched."""
    executor = start_executor(job_id=1)
    ids = tasks.run()[:3]
    submit(executor, tasks.queue(ids, job_id=1))
    tasks.change(ids[:1], state=None, queued_by_job_id=None)
    tasks.change(ids[1:2], queued_by_job_id=2)
    beat(executor)
    assert task_ids(pods()) == ["task_2"]
    assert total("workloads_dropped_total", reason="owner_changed") == 1


def test_a_revoked_task_instance_keeps_no_pending_pod(tasks, start_executor, pods, cluster, monkeypatch):
    """The stock executor deletes one pod that it finds by labels, which a kept pod shares."""
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__DELETE_WORKER_PODS", "False")
    executor = start_executor()
    ids = tasks.run()[:1]
    kept = set()
    for _ in range(3):
        submit(executor, tasks.queue(ids))
        beat(executor, lambda: executor.task_queue.qsize() == 0)
        (pod,) = [one for one in pods() if one.metadata.name not in kept]
        kept.add(pod.metadata.name)
        tasks.change(ids, state="up_for_reschedule")
        play(cluster, pod, "Succeeded")
        beat(executor, lambda: not executor.running)
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    with create_session() as session:
        (row,) = session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids)))
        executor.revoke_task(ti=row)
    assert [pod for pod in pods() if pod.status.phase == "Pending"] == []
    assert executor.running == set()


def test_a_task_instance_that_no_living_scheduler_has_is_counted(tasks, start_executor, scheduler_jobs):
    mine, dead, alive = scheduler_jobs(0, 3600, 0)
    stranded.forget_all()
    executor = start_executor(job_id=mine)
    ids = tasks.run()[:3]
    submit(executor, tasks.queue(ids, job_id=mine))
    for ti_id, owner in zip(ids, (None, dead, alive), strict=True):
        tasks.change([ti_id], queued_by_job_id=owner)
    beat(executor)
    assert total("workloads_dropped_total", reason="owner_changed") == 3
    looked = executor._steadfast_guard._stranded
    looked._next_at = 0.0
    beat(executor)
    assert total("stranded_task_instances") == 2
    tasks.change(ids, state="scheduled")
    looked._next_at = 0.0
    beat(executor)
    assert total("stranded_task_instances") == 0


def test_the_other_living_schedulers_are_known_on_every_airflow(start_executor, scheduler_jobs):
    mine, dead, alive = scheduler_jobs(0, 3600, 0)
    executor = start_executor(job_id=mine)
    assert executor._steadfast_guard.alive_schedulers(stranded.health_threshold()) == {alive}
    if hasattr(type(executor).__mro__[1], "_alive_other_scheduler_job_ids"):
        assert executor._alive_other_scheduler_job_ids() == {alive}
    assert dead not in {mine, alive}
