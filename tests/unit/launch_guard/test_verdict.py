# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.launch import Launch
from airflow_steadfast.launch_guard.rows import Row
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
