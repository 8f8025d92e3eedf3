# SPDX-License-Identifier: Apache-2.0
"""What an entry counts, says and takes over, once each."""

from __future__ import annotations

import logging

import pytest

from airflow_steadfast.launch_guard import entry as entries
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import LaunchId, PodRef
from airflow_steadfast.launch_guard.verdict import Verdict
from tests.support.guard_queue import POD, QUEUED, Job, World, plain_launches, total


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    plain_launches(monkeypatch)
    monkeypatch.setattr(entries, "_reported", set())


def test_entries_are_numbered_in_the_order_of_their_making():
    first, second = Entry.of(Job("a", "a")), Entry.of(Job("a", "a"))
    assert first.number < second.number
    first.begin_requeue()
    assert first.number > second.number


def test_a_requeue_starts_from_nothing_but_the_pods_before():
    one = Entry.of(Job("a", "a"))
    one.row = World().row("a")
    first = one.assign_launch_id()
    one.pod, one.created, one.pod_unknown, one.decided, one.open_counted = POD, True, True, True, True
    one.would_drop, one.held_since, one.verdict_at, one.retry_at = True, 1.0, 1.0, 5.0
    one.begin_requeue()
    assert (one.created, one.pod_unknown, one.decided, one.open_counted, one.would_drop) == (False,) * 5
    assert (one.held_since, one.verdict_at, one.pod, one.launch_id) == (None,) * 4
    assert one.retry_at == 0.0
    assert one.former_pods == {POD}
    assert one.assign_launch_id() == LaunchId("a", 1, QUEUED, 1)
    assert first == LaunchId("a", 1, QUEUED, 0)
    one.begin_requeue()
    assert one.requeue == 2
    assert one.former_pods == {POD}


def test_an_older_copy_hands_over_its_pods_and_the_higher_requeue_number():
    older, newer = Entry.of(Job("a", "a")), Entry.of(Job("a", "a"))
    older.requeue, newer.requeue = 1, 3
    newer.former_pods = {PodRef("airflow", "mine")}
    newer.inherit(older)
    assert newer.requeue == 3
    assert newer.former_pods == {PodRef("airflow", "mine")}
    older.requeue, older.pod = 5, POD
    newer.inherit(older)
    assert newer.requeue == 5
    assert POD in newer.former_pods


def test_a_copy_with_a_new_token_is_the_same_launch():
    one = Entry.of(Job("a", "a"))
    one.row, one.pod, one.requeue, one.former_pods = World().row("a"), POD, 2, {PodRef("airflow", "first")}
    one.assign_launch_id()
    job = Job("a", "a")
    copy = one.renewed(job)
    assert copy.job is job
    assert copy.launch == one.launch
    same = ("row", "launch_id", "pod", "requeue", "former_pods")
    assert [getattr(copy, name) for name in same] == [getattr(one, name) for name in same]
    assert copy.number > one.number


def test_launches_without_a_verdict_have_identities_that_differ():
    first, second = (Entry.of(Job("a", "a")).assign_launch_id() for _ in range(2))
    assert first != second
    assert len(first.nonce) == 16


def test_what_cannot_be_compared_is_said_once_and_counted_each_time(caplog):
    for _ in range(2):
        assert Entry.of(Job("callback")).launch is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["Launched unchecked (unsupported_workload), said once: callback"]
    assert total("launch_check_errors_total", reason="unsupported_workload") == 2


def test_a_failure_to_read_a_job_is_counted_as_ours(caplog):
    assert Entry.of("no job at all").launch is None
    assert total("launch_check_errors_total", reason="internal_error") == 1
    assert "no job at all" in caplog.text


def test_a_launch_that_would_be_dropped_is_said_and_counted_once(caplog):
    one = Entry.of(Job("a", "a"))
    with caplog.at_level(logging.INFO, "airflow_steadfast.launch_guard"):
        one.observe(Verdict(None))
        assert not one.would_drop
        for _ in range(2):
            one.observe(Verdict("state_changed"))
    assert total("workloads_would_drop_total", reason="state_changed") == 1
    assert sum("Would drop" in record.getMessage() for record in caplog.records) == 1


def test_a_launch_left_to_the_stock_check_has_no_verdict():
    one = Entry.of(Job("a", "a"))
    one.verdict_at = 1.0
    assert one.to_stock_check() is one
    assert one.verdict_at is None
    assert one.unguarded is True
    assert one.failed_open is True
