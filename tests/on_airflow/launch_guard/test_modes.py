# SPDX-License-Identifier: Apache-2.0
"""When the guard works, when it only counts, and when it leaves the executor alone."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

from airflow_steadfast import capabilities, signals
from airflow_steadfast.launch_guard.queue import GuardedQueue
from tests.support.airflow_lines import HAS_WORKLOADS, submit

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

HAS_NATIVE_CHECK = hasattr(KubernetesExecutor, "_should_create_pod_for_job") and HAS_WORKLOADS


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def active(component="launch_guard"):
    return {mode for mode in signals.catalogue.MODES if total("patch_active", component=component, mode=mode)}


def test_enforce_is_the_default(start_executor):
    executor = start_executor()
    assert isinstance(executor.task_queue, GuardedQueue)
    assert active() == {"enforce"}


def test_constructing_one_does_nothing(database):
    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor

    executor = GuardedKubernetesExecutor()
    assert not isinstance(executor.task_queue, GuardedQueue)
    assert executor._steadfast_guard is None
    executor.end()


def test_observe_counts_and_leaves_the_decision_to_the_stock_executor(tasks, start_executor, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__LAUNCH_GUARD", "observe")
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:3]))
    tasks.change(ids[:1], state="success")
    executor.heartbeat()
    # where the stock executor has a check, it works on as without the patch
    assert executor.kube_scheduler.launched_ids == (ids[1:3] if HAS_NATIVE_CHECK else ids[:3])
    assert total("workloads_would_drop_total", reason="state_changed") == 1
    assert total("workloads_dropped_total", reason="state_changed") == 0
    assert total("launches_decided_total") == 3
    assert active() == {"observe"}


def is_stock(executor):
    """Whether the provider's own methods are called, whatever parameters a newer one has given them."""
    names = ("sync", "_change_state", "adopt_launched_task", "revoke_task", "end")
    return all(getattr(executor, name).__func__ is getattr(KubernetesExecutor, name) for name in names)


def test_off_is_the_stock_executor(tasks, start_executor, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__LAUNCH_GUARD", "off")
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    tasks.change(ids[:1], state="success")
    executor.heartbeat()
    assert not isinstance(executor.task_queue, GuardedQueue)
    assert is_stock(executor)
    assert executor.kube_scheduler.launched_ids == (ids[1:2] if HAS_NATIVE_CHECK else ids[:2])
    assert total("launches_decided_total") == 0
    assert active() == {"off"}


@pytest.mark.parametrize("allowed", [False, True])
def test_a_provider_newer_than_tested_is_left_alone(allowed, start_executor, monkeypatch, caplog):
    monkeypatch.setattr(capabilities, "NEWEST_PROVIDER", "10.8.0")
    monkeypatch.setattr(capabilities, "LOWEST_PROVIDER", "10.0.0")
    monkeypatch.setenv("AIRFLOW__STEADFAST__ALLOW_UNTESTED", str(allowed))
    executor = start_executor()
    assert isinstance(executor.task_queue, GuardedQueue) is allowed
    assert active() == ({"enforce"} if allowed else set())
    lines = [record.getMessage() for record in caplog.records if "not active" in record.getMessage()]
    assert len(lines) == (0 if allowed else 1)
    if not allowed:
        assert "is newer than 10.8.0" in lines[0]


def test_a_seam_that_does_not_match_is_left_alone_even_if_untested_is_allowed(start_executor, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__ALLOW_UNTESTED", "True")
    monkeypatch.setattr(KubernetesExecutor, "_flush_task_queue", lambda: None)
    executor = start_executor()
    monkeypatch.undo()
    assert not isinstance(executor.task_queue, GuardedQueue)


@pytest.mark.parametrize("job_id", [None, "manual"])
def test_a_job_id_that_is_no_schedulers_is_launched_unchecked(job_id, tasks, start_executor, tmp_path):
    executor = start_executor(job_id=job_id)
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    executor.heartbeat()
    assert executor.kube_scheduler.launched_ids == ids[:2]
    assert is_stock(executor)
    assert total("launch_check_errors_total", reason="job_id_not_numeric") == 1
    assert not (tmp_path / "scheduler.json").exists()


def test_a_workload_that_is_no_task_instance_is_launched_unchecked(start_executor):
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesJob

    executor = start_executor()
    job = KubernetesJob("callback", ["something else"], None, None)
    executor.task_queue.put(job)
    executor.sync()
    assert executor.kube_scheduler.launched == [job]
    assert total("launch_check_errors_total", reason="unsupported_workload") == 1


@pytest.mark.skipif(not HAS_WORKLOADS, reason="Airflow 2 has command lines, which need no import")
def test_an_airflow_without_workloads_is_launched_unchecked(tasks, start_executor, monkeypatch):
    import sys

    executor = start_executor()
    ids = tasks.run()
    workloads = tasks.queue(ids[:2])
    tasks.change(ids[:1], state="success")
    submit(executor, workloads)
    with monkeypatch.context() as patched:
        jobs = []
        real_put = executor.task_queue.put
        executor.task_queue.put = jobs.append
        executor.trigger_tasks(10)
        executor.task_queue.put = real_put
        patched.setitem(sys.modules, "airflow.executors.workloads", None)
        for job in jobs:
            executor.task_queue.put(job)
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[:2]
    assert total("launch_check_errors_total", reason="import_error") == 2


def test_a_hold_longer_than_the_queue_timeout_is_reported(start_executor, monkeypatch, caplog):
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_MAX_HOLD", "700")
    executor = start_executor()
    assert executor.task_queue._settling.max_hold == 60
    (line,) = [record.getMessage() for record in caplog.records if "guard_max_hold" in record.getMessage()]
    assert "task_queued_timeout" in line
    assert total("settings_errors_total") == 1


def test_a_guard_that_cannot_be_made_leaves_the_stock_queue(tasks, start_executor, monkeypatch, caplog):
    monkeypatch.delattr(signals, "totals")
    executor = start_executor()
    monkeypatch.undo()
    assert not isinstance(executor.task_queue, GuardedQueue)
    assert sum("not active" in record.getMessage() for record in caplog.records) == 1


WORKING = "durable" if capabilities.has_task_state_store(capabilities.versions()) else "reattach_on_restart"


@pytest.mark.parametrize(
    ("patch_kpo", "newest", "published"),
    [("True", "10.25.0", {WORKING}), ("True", "10.8.0", set()), ("False", "10.25.0", {"off"})],
)
def test_the_scheduler_tells_of_the_durable_pod_too(
    patch_kpo, newest, published, start_executor, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__STEADFAST__PATCH_KPO", patch_kpo)
    monkeypatch.setattr(capabilities, "NEWEST_PROVIDER", newest)
    start_executor()
    assert active("durable_pod") == published
