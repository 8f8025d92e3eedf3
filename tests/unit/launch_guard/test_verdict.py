# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.launch import Launch, LaunchId
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.verdict import Verdict, judge, order_replaced
from tests.support.guard_queue import LATER, QUEUED

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
    found = None if row is None else Row(**{**FRESH, **row})
    verdict = judge(LAUNCH, found, job_id=7)
    assert verdict == Verdict(reason, found)
    assert verdict.fresh is (reason is None)


@pytest.mark.parametrize(
    ("tried", "now", "replaced"),
    [
        (QUEUED, QUEUED, False),
        (QUEUED, LATER, True),
        (LATER, QUEUED, True),
        (None, QUEUED, False),
        (QUEUED, None, False),
    ],
)
def test_an_order_is_replaced_when_its_row_was_queued_anew(tried, now, replaced):
    row = Row("queued", 1, 7, now)
    assert order_replaced(LaunchId("a", 1, tried), row) is replaced


def test_what_was_not_tried_or_is_not_there_is_not_replaced():
    assert not order_replaced(None, Row("queued", 1, 7, QUEUED))
    assert not order_replaced(LaunchId("a", 1, QUEUED), None)
