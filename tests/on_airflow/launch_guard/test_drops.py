# SPDX-License-Identifier: Apache-2.0
"""Which launches are dropped, and what a drop leaves behind."""

from __future__ import annotations

import json

import pytest
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.utils.session import create_session

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import drop
from tests.support import airflow_lines
from tests.support.airflow_lines import HAS_WORKLOADS, submit
from tests.support.kube_side import quota_exceeded

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


HAS_NATIVE_CHECK = hasattr(KubernetesExecutor, "_should_create_pod_for_job") and HAS_WORKLOADS
"""Whether the stock executor compares task workloads itself (provider 10.23 and newer, Airflow 3)."""


def attempts(executor):
    """What provider 10.20 and newer keeps to launch again after a pod that died before its task began."""
    return getattr(executor, "pod_launch_attempts", {})


def is_made_of(job, order):
    return job.command is order.command if not HAS_WORKLOADS else job.command[0] is order


def reason_of_clearing(before, after):
    """A cleared task instance gets a new id where it has one; where it keeps it, its state tells."""
    return "state_changed" if before == after else "task_instance_missing"


MOVES = {
    "task_instance_missing": lambda tasks, ids: tasks.delete_run("moving"),
    "try_superseded": lambda tasks, ids: tasks.change(ids, try_number=2),
    "state_changed": lambda tasks, ids: tasks.change(ids, state="success"),
    "owner_changed": lambda tasks, ids: tasks.change(ids, queued_by_job_id=2),
}


@pytest.mark.parametrize("reason", MOVES)
def test_a_workload_whose_work_moved_on_is_dropped(reason, tasks, start_executor):
    executor = start_executor()
    moving, staying = tasks.run("moving")[0], tasks.run("staying")[0]
    workloads = [*tasks.queue([moving]), *tasks.queue([staying])]
    submit(executor, workloads)
    MOVES[reason](tasks, [moving])

    executor.heartbeat()

    assert executor.kube_scheduler.launched_ids == [staying]
    assert total("workloads_dropped_total", reason=reason) == 1
    assert total("launches_decided_total") == 2
    gone = workloads[0].ti.key
    assert gone not in executor.running
    assert gone not in executor.event_buffer
    assert gone not in attempts(executor)
    assert gone not in executor.task_publish_retries
    kept = workloads[1].ti.key
    assert kept in executor.running
    assert kept in executor.event_buffer
    assert (kept in attempts(executor)) is hasattr(executor, "pod_launch_attempts")


def test_a_cleared_task_instance_is_dropped(tasks, start_executor):
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids))
    after = tasks.clear(ids[:3])
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[3:]
    assert total("workloads_dropped_total", reason=reason_of_clearing(ids[:3], after)) == 3


def test_a_drop_is_in_the_audit_log_the_log_and_the_handoff_file(tasks, start_executor, caplog, tmp_path):
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.log import Log
    from sqlalchemy import select

    executor = start_executor()
    ids = tasks.run()
    (workload,) = tasks.queue(ids[:1])
    submit(executor, [workload])
    tasks.change(ids[:1], queued_by_job_id=7)
    with caplog.at_level("INFO", "airflow_steadfast.launch_guard"):
        executor.heartbeat()

    (line,) = [record.getMessage() for record in caplog.records if "Dropped" in record.getMessage()]
    for part in ("reason=owner_changed", "guarded", "task_0", "run_1", ids[0], "queued_by_job_id=7"):
        assert part in line
    with create_session() as session:
        SchedulerJobRunner._process_task_event_logs(executor._task_event_logs, session)
    with create_session() as session:
        row = session.scalar(select(Log).where(Log.event == drop.AUDIT_EVENT))
        assert (row.dag_id, row.task_id, row.run_id, row.try_number) == ("guarded", "task_0", "run_1", 1)
        extra = json.loads(row.extra)
    assert extra["reason"] == "owner_changed"
    assert extra["task_instance_id"] == ids[0]
    written = json.loads((tmp_path / "scheduler.json").read_text())
    counters = {
        (counter["name"], counter["labels"].get("reason")): counter["value"]
        for counter in written["counters"]
    }
    assert counters["steadfast_workloads_dropped_total", "owner_changed"] == 1


def test_three_stale_and_two_fresh_take_one_statement(tasks, start_executor, statements):
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:5]))
    tasks.change(ids[:3], state="success")
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[3:5]
    assert len(statements(executor)) == 1


def test_a_loop_with_nothing_to_launch_asks_nothing(tasks, start_executor, statements):
    executor = start_executor()
    for _ in range(3):
        executor.heartbeat()
    assert statements(executor) == []
    assert total("launch_checks_total") == 0


@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_drops_use_up_no_creation_batch(stock, tasks, start_executor):
    executor = start_executor(stock=stock, batch=1)
    ids = tasks.run()
    submit(executor, tasks.queue(ids))
    tasks.change(ids[:-1], state="success")
    executor.heartbeat()
    launched_by_stock = [] if HAS_NATIVE_CHECK else ids[:1]
    assert executor.kube_scheduler.launched_ids == (launched_by_stock if stock else ids[-1:])


@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_a_drop_spares_the_books_of_a_newer_launch_with_the_same_key(stock, tasks, start_executor):
    executor = start_executor(stock=stock)
    old = tasks.run("daily")
    (stale,) = tasks.queue(old[:1])
    submit(executor, [stale])
    executor.trigger_tasks(100)
    tasks.delete_run("daily")
    new = tasks.run("daily")
    (fresh,) = tasks.queue(new[:1])
    assert fresh.ti.key == stale.ti.key
    executor.running.clear()  # as its scheduler's revocation did: Airflow 2 queues no key that runs
    submit(executor, [fresh])
    executor.heartbeat()

    launched = executor.kube_scheduler.launched
    if stock and not HAS_NATIVE_CHECK:
        assert len(launched) == 2
        return
    assert executor.kube_scheduler.launched_ids == new[:1]
    assert stock or is_made_of(launched[0], fresh)  # the stock queue pickles
    # upstream forgets the pod that it has just launched
    assert (fresh.ti.key in executor.running) is not stock
    if not stock:
        assert (fresh.ti.key in attempts(executor)) is hasattr(executor, "pod_launch_attempts")
        # without ids the two are copies of one order
        reason = "superseded" if old == new else "task_instance_missing"
        assert total("workloads_dropped_total", reason=reason) == 1


@pytest.mark.parametrize("stock", [False, True], ids=["guarded", "upstream"])
def test_a_requeue_by_the_same_scheduler_launches_one_pod(stock, tasks, start_executor):
    executor = start_executor(stock=stock)
    ids = tasks.run()
    for _ in range(2):
        executor.running.clear()  # as its scheduler's revocation did: Airflow 2 queues no key that runs
        submit(executor, tasks.queue(ids[:1]))
        executor.trigger_tasks(100)
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[:1] * (2 if stock else 1)
    if not stock:
        assert total("workloads_dropped_total", reason="superseded") == 1
        assert len(executor.running) == 1
        assert len(attempts(executor)) == int(hasattr(executor, "pod_launch_attempts"))


def test_the_newest_copy_is_the_one_that_stays(tasks, start_executor):
    executor = start_executor()
    ids = tasks.run()
    copies = []
    for _ in range(2):
        executor.running.clear()  # as its scheduler's revocation did: Airflow 2 queues no key that runs
        copies += tasks.queue(ids[:1])
        submit(executor, copies[-1:])
        executor.trigger_tasks(100)
    executor.heartbeat()
    (job,) = executor.kube_scheduler.launched
    assert is_made_of(job, copies[1])


def test_a_revoked_task_instance_leaves_the_queue(tasks, start_executor):
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    executor.trigger_tasks(100)
    with create_session() as session:
        revoked = session.scalar(select(TaskInstance).where(airflow_lines.with_ids(ids[:1])))
        executor.revoke_task(ti=revoked)
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[1:2]


def test_a_launch_refused_by_a_quota_is_tried_once_a_loop_and_decided_once(tasks, start_executor):
    executor = start_executor()
    executor.task_publish_max_retries = -1
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:1]))
    executor.kube_scheduler.answers = [quota_exceeded(), quota_exceeded()]
    for left in (1, 0, 0):
        executor.heartbeat()
        assert len(executor.kube_scheduler.answers) == left
    assert executor.kube_scheduler.launched_ids == ids[:1]
    assert total("launches_decided_total") == 1
    assert total("launch_checks_total") == 3


def test_refused_by_a_quota_then_cleared_is_dropped_and_counted_once(tasks, start_executor):
    executor = start_executor()
    executor.task_publish_max_retries = -1
    ids = tasks.run()
    submit(executor, tasks.queue(ids))
    executor.kube_scheduler.answers = [quota_exceeded()] * len(ids)
    executor.heartbeat()
    fresh = tasks.clear(ids)
    executor.heartbeat()
    submit(executor, tasks.queue(fresh))
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == fresh
    assert total("workloads_dropped_total", reason=reason_of_clearing(ids, fresh)) == len(ids)
    assert total("launches_decided_total") == 2 * len(ids)
    assert executor.task_publish_retries == {}


@pytest.mark.skipif(
    not hasattr(KubernetesExecutor, "_create_pods_concurrently"),
    reason="this provider creates pods one by one (before 10.21)",
)
def test_the_concurrent_path_is_guarded_too(tasks, start_executor, statements):
    executor = start_executor()
    executor.kube_config.async_pod_creation = True
    ids = tasks.run()
    submit(executor, tasks.queue(ids))
    tasks.change(ids[:3], state="success")
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[3:]
    assert len(statements(executor)) == 1


def test_the_running_pod_of_the_same_try_keeps_its_slot(tasks, start_executor):
    executor = start_executor()
    ids = tasks.run()
    (workload,) = tasks.queue(ids[:1])
    submit(executor, [workload])
    tasks.change(ids[:1], state="running")
    executor.heartbeat()
    assert executor.kube_scheduler.launched == []
    assert workload.ti.key in executor.running
    assert total("workloads_dropped_total", reason="state_changed") == 1
