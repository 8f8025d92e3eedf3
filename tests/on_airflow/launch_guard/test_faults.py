# SPDX-License-Identifier: Apache-2.0
"""The database fails, the guard does not: nothing escapes ``sync()``, no launch is lost or made twice."""

from __future__ import annotations

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.utils.session import create_session
from sqlalchemy import create_engine, select, text

from airflow_steadfast import signals
from tests.support import airflow_lines
from tests.support.airflow_lines import HAS_WORKLOADS, submit

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

HAS_NATIVE_CHECK = hasattr(KubernetesExecutor, "_should_create_pod_for_job") and HAS_WORKLOADS


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def enqueue(executor, workloads):
    """Bring workloads into the executor's task queue, as a loop before the fault did."""
    submit(executor, workloads)
    executor.trigger_tasks(1_000)


class Clock:
    """The queue's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    return Clock()


def on_clock(executor, clock):
    executor._steadfast_guard.queue._clock = clock
    return executor


@pytest.fixture
def stopped_server(server):
    """Stops the server when called; it runs again after the test."""
    running = [True]

    def stop():
        server.stop()
        running[0] = False

    def start():
        if not running[0]:
            server.start()
            running[0] = True

    yield stop, start
    start()


def test_a_stopped_database_holds_launches_and_loses_none(tasks, start_executor, stopped_server, clock):
    stop, start = stopped_server
    executor = on_clock(start_executor(), clock)
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids))
    tasks.change(ids[:3], state="success")
    stop()
    for _ in range(3):
        executor.sync()
        clock.now += 3
    assert executor.kube_scheduler.launched == []
    assert executor.task_queue.qsize() == len(ids)
    assert total("launches_held") == len(ids)
    assert total("launch_check_errors_total", reason="database_error") > 0
    assert len(executor.running) == len(ids)

    start()
    clock.now += 11
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[3:]
    assert total("launches_held") == 0
    assert total("workloads_dropped_total", reason="state_changed") == 3
    assert total("launches_failed_open_total") == 0
    assert total("launches_decided_total") == len(ids)


def test_upstream_raises_into_the_scheduler_and_loses_the_launch(tasks, start_executor, stopped_server):
    stop, start = stopped_server
    executor = start_executor(stock=True)
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:2]))
    stop()
    if not HAS_NATIVE_CHECK:
        executor.sync()
        assert executor.kube_scheduler.launched_ids == ids[:2]
        return
    with pytest.raises(Exception, match=r"connection|server"):
        executor.sync()
    start()
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[1:2]
    assert len(executor.running) == 2


def test_held_for_too_long_is_launched_without_a_verdict(tasks, start_executor, stopped_server, clock):
    stop, _ = stopped_server
    executor = on_clock(start_executor(), clock)
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids))
    stop()
    executor.sync()
    clock.now += 59
    executor.sync()
    assert executor.kube_scheduler.launched == []
    clock.now += 2
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids
    assert total("launches_failed_open_total") == len(ids)
    assert total("launches_decided_total") == len(ids)
    executor.sync()
    assert total("launches_held") == 0


def test_a_connection_closed_under_the_check_is_opened_again_at_once(tasks, start_executor, server, database):
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:1]))
    executor.sync()
    closed = server.psql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        f"WHERE pid <> pg_backend_pid() AND datname = '{database}'"
    )
    assert int(closed) > 0
    enqueue(executor, tasks_after_reconnect(tasks, ids[1:2]))
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[:2]
    assert total("launch_check_errors_total", reason="database_error") == 0


def tasks_after_reconnect(tasks, ids):
    """The scheduler's own pool lost its connections too."""
    from airflow import settings

    settings.engine.dispose()
    return tasks.queue(ids)


def test_a_locked_table_is_a_timeout_not_a_hang(tasks, start_executor, server, database, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CHECK_TIMEOUT", "0.3")
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:2]))
    engine = create_engine(server.url(database), future=True)
    with engine.connect() as other:
        other.execute(text("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE"))
        executor.sync()
        assert executor.kube_scheduler.launched == []
        assert total("launch_check_errors_total", reason="timeout") == 2
        other.rollback()
    engine.dispose()
    assert executor.task_queue.qsize() == 2


def test_the_schedulers_open_transaction_stays_open(tasks, start_executor):
    """The executor works inside the scheduler's scoped session on Airflow 2; upstream's check commits it."""
    from airflow import settings

    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:1]))
    session = settings.Session()
    row = session.scalar(select(TaskInstance).where(airflow_lines.with_ids(ids[5:6])))
    row.hostname = "uncommitted"
    session.flush()
    executor.sync()
    session.rollback()
    with create_session() as other:
        assert (
            other.scalar(select(TaskInstance.hostname).where(airflow_lines.with_ids(ids[5:6])))
            != "uncommitted"
        )
    assert executor.kube_scheduler.launched_ids == ids[:1]


def test_the_end_asks_nobody_and_waits_for_nobody(tasks, start_executor, stopped_server):
    stop, _ = stopped_server
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids))
    stop()
    executor.end()
    assert executor.kube_scheduler.ended
    assert total("launch_checks_total") == 0


def test_a_failure_of_the_guard_itself_leaves_the_stock_check(tasks, start_executor, monkeypatch, caplog):
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:3]))
    tasks.change(ids[:1], state="success")

    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(executor._steadfast_guard.queue._settling, "_verdicts", broken)
    executor.sync()
    executor.sync()
    assert executor.kube_scheduler.launched_ids == (ids[1:3] if HAS_NATIVE_CHECK else ids[:3])
    assert total("launch_check_errors_total", reason="internal_error") >= 3
    assert sum("The launch guard failed" in record.getMessage() for record in caplog.records) == 1


def test_a_drop_that_cannot_be_reported_loses_nothing(tasks, start_executor, monkeypatch):
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:3]))
    tasks.change(ids[:1], state="success")
    monkeypatch.delattr(type(executor).__mro__[2], "log_task_event")
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[1:3]
    assert total("workloads_dropped_total", reason="state_changed") == 1


def test_a_handoff_folder_that_is_missing_stops_no_launch(tasks, start_executor, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW__STEADFAST__HANDOFF_DIR", str(tmp_path / "missing"))
    executor = start_executor()
    ids = tasks.run()
    enqueue(executor, tasks.queue(ids[:2]))
    tasks.change(ids[:1], state="success")
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[1:2]
    (tmp_path / "missing").mkdir()
    executor.sync()
    assert (tmp_path / "missing" / "scheduler.json").exists()
