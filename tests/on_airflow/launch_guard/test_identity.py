# SPDX-License-Identifier: Apache-2.0
"""Which task instance, which order and which launch a job stands for, on every line of Airflow."""

from __future__ import annotations

import uuid

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import rows, workload
from tests.support import airflow_lines
from tests.support.airflow_lines import HAS_WORKLOADS, submit

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def launch_ids(executor):
    return [entry.assign_launch_id() for entry in executor._steadfast_guard.queue.handed_out()]


@pytest.mark.parametrize("between", ["up_for_reschedule", "deferred"])
def test_a_task_instance_that_comes_back_is_launched_each_time_as_a_launch_of_its_own(
    between, tasks, start_executor
):
    executor = start_executor()
    ids = tasks.run()
    seen = []
    for _ in range(3):
        (order,) = tasks.queue(ids[:1])
        submit(executor, [order])
        executor.heartbeat()
        seen += launch_ids(executor)
        tasks.change(ids[:1], state="running")
        tasks.change(ids[:1], state=between)
        executor.running.discard(order.ti.key)  # as its pod's end does
    assert executor.kube_scheduler.launched_ids == ids[:1] * 3
    assert len({launch.text() for launch in seen}) == 3
    assert {(launch.ti_id, launch.try_number, launch.requeue) for launch in seen} == {(ids[0], 1, 0)}


def test_a_restarted_scheduler_gives_the_same_order_the_same_identity(tasks, start_executor):
    ids = tasks.run()
    (order,) = tasks.queue(ids[:1])
    seen = []
    for _ in range(2):
        executor = start_executor()
        submit(executor, [order])
        executor.heartbeat()
        seen += launch_ids(executor)
    assert seen[0] == seen[1]
    assert seen[0].queued_dttm is not None
    assert not seen[0].nonce


def test_a_row_and_its_order_have_the_same_id(tasks, start_executor):
    ids = tasks.run()
    executor = start_executor()
    submit(executor, tasks.queue(ids[:1]))
    executor.heartbeat()
    (job,) = executor.kube_scheduler.launched
    with create_session() as session:
        row = session.scalar(select(TaskInstance).where(airflow_lines.with_ids(ids[:1])))
        assert workload.ti_id_of(row) == ids[0]
    assert workload.launch_of(job).ti_id == ids[0]


def spread(server, database, count):
    """Copy the one row of a run into ``count`` mapped task instances."""
    columns = server.psql(
        "SELECT string_agg(column_name, ',') FROM information_schema.columns "
        "WHERE table_name = 'task_instance'",
        database,
    ).split(",")
    values = {"id": "gen_random_uuid()", "map_index": "number"}
    server.psql(
        f"INSERT INTO task_instance ({', '.join(columns)}) "
        f"SELECT {', '.join(values.get(column, column) for column in columns)} FROM (SELECT * FROM "
        f"task_instance WHERE task_id = 'task_0' LIMIT 1) one, generate_series(0, {count - 1}) number",
        database,
    )
    with create_session() as session:
        found = session.scalars(
            select(TaskInstance).where(TaskInstance.map_index >= 0).order_by(TaskInstance.map_index)
        )
        return [airflow_lines.id_of(ti) for ti in found]


def test_each_mapped_task_instance_is_compared_with_its_own_row(
    tasks, start_executor, server, database, statements
):
    tasks.run()
    ids = spread(server, database, 50)
    executor = start_executor(batch=100)
    submit(executor, tasks.queue(ids))
    tasks.change(ids[::2], state="success")
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[1::2]
    assert total("workloads_dropped_total", reason="state_changed") == 25
    assert len(statements(executor)) == 1


def test_an_expansion_that_renumbers_the_row_is_told_by_its_key(tasks, start_executor):
    """Expansion turns map index -1 into 0: the id stays, the primary key of Airflow 2 does not."""
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:1]))
    tasks.change(ids[:1], map_index=0)
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == (ids[:1] if HAS_WORKLOADS else [])
    assert total("workloads_dropped_total", reason="task_instance_missing") == (0 if HAS_WORKLOADS else 1)


@pytest.mark.skipif(not HAS_WORKLOADS, reason="Airflow 2 has no task instance ids")
def test_a_malformed_id_breaks_neither_its_own_launch_nor_the_batch(tasks, start_executor):
    executor = start_executor()
    ids = tasks.run()
    first, second, third = tasks.queue(ids[:3])
    malformed = "0198c3a2-malformed"
    submit(executor, [first, second, third])
    executor.trigger_tasks(100)
    jobs = [entry.job for entry in executor.task_queue._line]
    broken = second.model_copy(update={"ti": second.ti.model_copy(update={"id": malformed})})
    executor.task_queue.purge(ids[1])
    executor.task_queue.put(jobs[1]._replace(command=[broken]))
    tasks.change(ids[:1], state="success")
    executor.sync()
    assert set(executor.kube_scheduler.launched_ids) == {ids[2], malformed}
    assert total("launch_check_errors_total", reason="unsupported_workload") == 1
    assert total("launch_check_errors_total", reason="internal_error") == 0


def test_a_key_of_the_wrong_kind_is_not_comparable_and_matches_no_row(tasks):
    tasks.run()
    wrong = ("d", "t", "r", -1) if HAS_WORKLOADS else str(uuid.uuid4())
    assert not rows.is_comparable(wrong)
    with create_session() as session:
        assert dict(rows.by_key(session.execute(rows.query([wrong])))) == {}


@pytest.mark.skipif(HAS_WORKLOADS, reason="command lines are of Airflow 2")
@pytest.mark.parametrize("command", [["airflow", "version"], ["bash", "-c", "true"], []])
def test_a_command_that_runs_no_task_is_launched_unchecked(command, start_executor):
    from airflow.models.taskinstancekey import TaskInstanceKey
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

    executor = start_executor()
    job = KubernetesJob(TaskInstanceKey("d", "t", "r", 1, -1), command, None, None)
    executor.task_queue.put(job)
    executor.sync()
    assert executor.kube_scheduler.launched == [job]
    assert total("launch_check_errors_total", reason="unsupported_workload") == 1


def test_a_callback_is_launched_unchecked(start_executor):
    workloads = pytest.importorskip("airflow.executors.workloads", reason="Airflow 2 has no callbacks")
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

    kind = getattr(workloads, "ExecuteCallback", None) or workloads.RunTrigger
    executor = start_executor()
    job = KubernetesJob("callback", [kind.model_construct()], None, None)
    executor.task_queue.put(job)
    executor.sync()
    assert executor.kube_scheduler.launched == [job]
    assert total("launch_check_errors_total", reason="unsupported_workload") == 1


def test_several_executors_of_a_scheduler_are_guarded_apart_and_counted_together(
    tasks, start_executor, server
):
    first, second = start_executor(), start_executor()
    ids = tasks.run()
    for executor, mine in ((first, ids[:4]), (second, ids[4:])):
        submit(executor, tasks.queue(mine))
        executor.trigger_tasks(100)
    tasks.change([ids[0], ids[4]], state="success")
    for executor in (first, second):
        executor.task_queue._settling.backoff.fail(OSError("down"))
        executor.sync()
    assert total("launches_held") == 8
    for executor in (first, second):
        executor.task_queue._settling.backoff.succeed()
        executor.sync()
    assert total("launches_held") == 0
    assert first.kube_scheduler.launched_ids == ids[1:4]
    assert second.kube_scheduler.launched_ids == ids[5:]
    assert total("workloads_dropped_total", reason="state_changed") == 2


def test_an_executor_of_a_team_is_guarded_too(tasks, database):
    import inspect

    from airflow.executors.base_executor import BaseExecutor

    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor
    from tests.support import kube_side

    has_teams = "team_name" in inspect.signature(BaseExecutor.__init__).parameters
    takes_teams = "args" in inspect.signature(GuardedKubernetesExecutor.__init__).parameters
    team = {"team_name": "blue"} if has_teams and takes_teams else {}
    executor = GuardedKubernetesExecutor(**team)
    kube_side.start(executor)
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    tasks.change(ids[:1], state="success")
    executor.heartbeat()
    executor.end()
    assert executor.kube_scheduler.launched_ids == ids[1:2]
