# SPDX-License-Identifier: Apache-2.0
"""The executor's books after a drop: nothing of the dropped launch stays, nothing of another one goes."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

from airflow_steadfast.launch_guard import drop
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchBook
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.verdict import Verdict

KEY = "key"


class Queue:
    def __init__(self):
        self.launches = LaunchBook()
        self.live = None

    def other_live(self, entry):
        return self.live


def launched(queue, name="a"):
    job = SimpleNamespace(key=KEY, name=name)
    entry = Entry(
        job, Launch(name, 1, key=SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1))
    )
    queue.launches.begin(KEY, entry)
    return entry


def executor_of(entry, **more):
    books = {
        "running": {KEY, "other"},
        "event_buffer": {KEY: ("queued", 1), "other": ("queued", 1)},
        "pod_launch_attempts": {KEY: SimpleNamespace(job=entry.job), "other": SimpleNamespace(job=None)},
        "task_publish_retries": {KEY: 2, "other": 1},
        **more,
    }
    return SimpleNamespace(**books)


@pytest.fixture
def queue():
    return Queue()


def clear(executor, entry, queue, verdict=None):
    drop.clear_books(executor, entry, verdict or Verdict("state_changed"), queue, job_id=1)


def test_all_books_of_the_dropped_launch_are_cleared_and_no_other_keys(queue):
    entry = launched(queue)
    executor = executor_of(entry)
    clear(executor, entry, queue)
    assert executor.running == {"other"}
    assert set(executor.event_buffer) == set(executor.pod_launch_attempts) == {"other"}
    assert executor.task_publish_retries == {"other": 1}


def test_a_launch_that_is_not_current_has_no_books(queue):
    entry = launched(queue)
    newer = launched(queue)
    executor = executor_of(newer)
    clear(executor, entry, queue)
    assert executor.__dict__ == executor_of(newer).__dict__


def test_another_live_launch_keeps_its_slot_and_its_attempt(queue):
    live, entry = launched(queue, "a"), launched(queue, "b")
    queue.live = live
    executor = executor_of(entry)
    clear(executor, entry, queue)
    assert KEY in executor.running
    assert executor.pod_launch_attempts[KEY].job is live.job
    assert KEY not in executor.event_buffer
    assert KEY not in executor.task_publish_retries


def test_an_attempt_of_another_job_stays(queue):
    entry = launched(queue)
    executor = executor_of(entry)
    other = executor.pod_launch_attempts[KEY].job = object()
    clear(executor, entry, queue)
    assert executor.pod_launch_attempts[KEY].job is other


def test_an_event_that_is_not_queued_is_news_and_stays(queue):
    entry = launched(queue)
    executor = executor_of(entry, event_buffer={KEY: (SimpleNamespace(value="failed"), None)})
    clear(executor, entry, queue)
    assert KEY in executor.event_buffer


def test_an_enumerated_state_is_read_like_a_plain_one(queue):
    entry = launched(queue)
    executor = executor_of(entry, event_buffer={KEY: (SimpleNamespace(value="queued"), 1)})
    clear(executor, entry, queue)
    assert executor.event_buffer == {}


def test_an_old_provider_keeps_no_attempts(queue):
    entry = launched(queue)
    executor = executor_of(entry)
    del executor.pod_launch_attempts, executor.task_publish_retries
    clear(executor, entry, queue)
    assert executor.running == {"other"}


@pytest.mark.parametrize(
    ("row", "keeps"),
    [
        (Row("running", 1, 1, None), True),
        (Row("running", 2, 1, None), False),
        (Row("running", 1, 2, None), False),
        (Row("success", 1, 1, None), False),
        (None, False),
    ],
)
def test_a_pod_at_work_for_this_try_and_scheduler_keeps_the_slot(row, keeps, queue):
    entry = launched(queue)
    executor = executor_of(entry)
    clear(executor, entry, queue, Verdict("state_changed", row))
    assert (KEY in executor.running) is keeps


def test_what_cannot_be_compared_is_not_at_work(queue):
    entry = launched(queue)
    entry.launch = None
    executor = executor_of(entry)
    clear(executor, entry, queue, Verdict("state_changed", Row("running", 1, 1, None)))
    assert KEY not in executor.running


def test_a_report_hands_back_its_pending_row_only(queue):
    said = []
    executor = SimpleNamespace(
        _task_event_logs=deque(["earlier"]),
        log_task_event=lambda **row: (said.append(row), executor._task_event_logs.append("mine")),
    )
    entry = launched(queue)
    assert drop.report(executor, entry, Verdict("owner_changed", Row("queued", 1, 2, None)), 1) == ["mine"]
    assert said[0]["ti_key"] is entry.launch.key
    assert '"queued_by_job_id": 2' in said[0]["extra"]
    entry.launch = None
    assert drop.report(executor, entry, Verdict("other"), 1) == []
    assert len(said) == 1
