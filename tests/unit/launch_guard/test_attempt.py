# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone
from typing import NamedTuple

from airflow_steadfast.launch_guard.attempt import Attempts
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, PodRef
from airflow_steadfast.launch_guard.rows import Row


class Job(NamedTuple):
    key: str = "key"


def entry():
    one = Entry(Job(), Launch("ti", 1, None))
    one.row = Row("queued", 1, 1, datetime(2026, 1, 1, tzinfo=timezone.utc))
    return one


def test_a_launch_has_one_attempt_and_a_requeue_another():
    attempts, one = Attempts(), entry()
    assert attempts.of(one) is None
    first = attempts.begin(one)
    first.number, first.failures = 3, 2
    assert attempts.begin(one) is first is attempts.of(one)
    assert first.naming.number == 3
    one.created = True
    one.begin_requeue()
    second = attempts.begin(one)
    assert second is not first
    assert (second.number, second.failures, second.in_doubt) == (1, 0, [])
    assert second.launch_id != first.launch_id


def test_what_cannot_be_compared_has_none():
    attempts = Attempts()
    assert attempts.begin(Entry(Job())) is None
    assert attempts.of(None) is None


def test_a_copy_inherits_the_pod_that_may_exist():
    one = entry()
    one.pod = PodRef("space", "name")
    assert Attempts().begin(one).in_doubt == [PodRef("space", "name")]


def test_the_budget_begins_with_the_first_failure_and_leaves_out_what_the_server_asked_for():
    attempt = Attempts().begin(entry())
    attempt.extend(50)
    assert attempt.spend(1000.0, 120)
    assert attempt.spend(1119.9, 120)
    assert not attempt.spend(1120.0, 120)
    attempt.extend(10)
    assert attempt.spend(1129.9, 120)
    assert not attempt.spend(1130.0, 120)


def test_without_a_budget_there_is_no_second_try():
    assert not Attempts().begin(entry()).spend(5.0, 0)


def test_tries_become_rarer():
    attempt = Attempts().begin(entry())
    delays = []
    for _ in range(8):
        attempt.spend(0.0, 120)
        delays.append(attempt.delay())
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_each_create_starts_from_nothing_built():
    attempts, one = Attempts(), entry()
    attempt = attempts.begin(one)
    attempt.naming.name, attempt.request, attempt.response = "name", object(), object()
    attempts.begin(one)
    assert (attempt.naming.name, attempt.request, attempt.response) == ("", None, None)
    assert not attempt.named_by_us
