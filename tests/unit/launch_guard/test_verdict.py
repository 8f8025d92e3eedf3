# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.launch import CurrentLaunches, Launch
from airflow_steadfast.launch_guard.snapshot import Row
from airflow_steadfast.launch_guard.verdict import judge

LAUNCH = Launch("a", 2, key=None)
FRESH = {"state": "queued", "try_number": 2, "queued_by_job_id": 7, "queued_dttm": None}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, None),
        (None, "task_instance_missing"),
        ({"try_number": 3}, "try_superseded"),
        ({"state": "running"}, "state_changed"),
        ({"state": None}, "state_changed"),
        ({"queued_by_job_id": 8}, "owner_changed"),
        ({"queued_by_job_id": None}, "owner_changed"),
        ({"try_number": 3, "state": "running", "queued_by_job_id": 8}, "try_superseded"),
        ({"state": "running", "queued_by_job_id": 8}, "state_changed"),
    ],
)
def test_the_most_telling_reason_is_given(row, reason):
    verdict = judge(LAUNCH, None if row is None else Row(**{**FRESH, **row}), job_id=7)
    assert verdict.reason == reason
    assert verdict.fresh is (reason is None)


def test_a_key_stands_for_its_newest_job():
    current = CurrentLaunches()
    first, second = ["job"], ["job"]
    current.begin("key", first)
    current.begin("key", second)
    current.forget("key", first)
    assert current.is_current("key", second)
    assert not current.is_current("key", first)


def test_dead_keys_are_forgotten_once_there_are_many():
    current = CurrentLaunches()
    jobs = [[number] for number in range(2_000)]
    for number, job in enumerate(jobs):
        current.begin(number, job)
    current.prune(lambda: {5}, live_count=1)
    assert current.is_current(5, jobs[5])
    assert not current.is_current(6, jobs[6])
