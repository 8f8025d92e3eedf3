# SPDX-License-Identifier: Apache-2.0
"""A scheduler adopts another one's pod while a copy of the same task instance waits in its own queue."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from airflow.jobs.job import Job
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.support import airflow_lines
from tests.support.worker_pods import beat, play, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]


@pytest.mark.parametrize("stock", [True, False], ids=["of_a_stock_executor", "of_a_guarded_executor"])
def test_an_adopted_pod_is_the_launch_and_the_queued_copy_is_none(
    stock, tasks, start_executor, pods, cluster
):
    with create_session() as session:
        dead = Job(job_type="SchedulerJob", state="running")
        dead.latest_heartbeat = datetime.now(timezone.utc) - timedelta(hours=1)
        alive = Job(job_type="SchedulerJob", state="running")
        session.add_all([dead, alive])
        session.flush()
        dead_id, alive_id = dead.id, alive.id
    executor, thief = start_executor(job_id=alive_id), start_executor(stock=stock, job_id=dead_id)
    ids = tasks.run()[:1]
    executor.task_queue.pause_until(executor.task_queue.now() + 3600)
    submit(executor, tasks.queue(ids, job_id=alive_id))
    beat(executor)
    assert executor.task_queue.qsize() == 1

    submit(thief, tasks.queue(ids, job_id=dead_id))
    beat(thief)
    with create_session() as session:
        rows = list(session.scalars(select(TaskInstance).where(airflow_lines.with_ids(ids))))
        assert executor.try_adopt_task_instances(rows) == []
        session.expunge_all()
    tasks.change(ids, queued_by_job_id=alive_id)
    executor.task_queue._paused_until = 0.0
    for _ in range(3):
        beat(executor)
    assert task_ids(pods()) == ["task_0"]
    assert len(executor.running) == 1

    tasks.change(ids, state="running")
    play(cluster, pods()[0], "Failed", "Error")
    beat(executor, lambda: not executor.running)
    assert states(executor) == {"task_0": "failed"}
