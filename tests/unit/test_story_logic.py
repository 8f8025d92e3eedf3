# SPDX-License-Identifier: Apache-2.0
"""The parts of the stories that decide whether one came out as told: they must not pass by mistake."""

from __future__ import annotations

import json

import pytest

from tests.cluster.demo.report import metrics, table
from tests.cluster.stories import restarts, stale
from tests.cluster.stories.metrics import series
from tests.cluster.stories.outcome import Outcome, StoryFailedError, difference, wait_for
from tests.cluster.stories.pods import PodWatch


def _pod(uid: str, phase: str, identity: str | None = None) -> dict[str, object]:
    workload = json.dumps({"ti": {"id": identity, "run_id": "r"}})
    arguments = ["python", "-m", "worker", "--json-string", workload] if identity else ["sleep"]
    return {
        "metadata": {
            "uid": uid,
            "name": uid,
            "resourceVersion": "1",
            "annotations": {"demo/run": "r"},
            "labels": {},
        },
        "spec": {"containers": [{"name": "base", "args": arguments}]},
        "status": {"phase": phase},
    }


def test_an_expectation_that_fails_says_what_was_expected_and_seen() -> None:
    with pytest.raises(StoryFailedError, match="executions: expected 1, seen 2"):
        Outcome("a story").expect("executions", 1, 2)


def test_a_wait_that_ends_in_vain_says_what_was_last_seen() -> None:
    with pytest.raises(StoryFailedError, match=r"the moon.*last seen 'cheese'"):
        wait_for("the moon", lambda: "cheese", lambda _: False, 0, 0)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"a": 1.0}, {"a": 1.0}, {}),
        ({"a": 1.0}, {"a": 2.0}, {"a": "1 -> 2"}),
        ({"a": 1.0}, {}, {"a": "1 -> 0"}),
    ],
    ids=["same", "doubled", "lost"],
)
def test_a_count_that_changed_over_a_restart_is_named(before, after, named) -> None:
    assert difference(before, after) == named


def test_restarts_compare_counters_and_histograms_but_no_gauge_and_nothing_of_the_process() -> None:
    totals = {
        "steadfast_launches_decided_total": 1.0,
        "steadfast_launch_check_duration_seconds_sum": 0.1,
        "steadfast_launches_held": 1.0,
        'steadfast_collector_errors_total{source="outbox"}': 1.0,
    }
    assert set(restarts.counters(totals)) == {
        "steadfast_launches_decided_total",
        "steadfast_launch_check_duration_seconds_sum",
    }


def test_drops_are_counted_by_reason_as_an_increase() -> None:
    missing = series(stale.DROPPED, {"reason": "task_instance_missing"})
    other = series(stale.DROPPED, {"reason": "other"})
    dropped = stale.dropped_between({missing: 3.0, other: 1.0}, {missing: 27.0, other: 1.0})
    assert dropped == {"task_instance_missing": 24.0}


def test_the_watch_keeps_a_pod_that_is_gone_and_reads_a_worker_by_its_workload() -> None:
    watch = PodWatch(kubectl=None)  # type: ignore[arg-type]  # never asked
    for kind, phase in (("ADDED", "Pending"), ("MODIFIED", "Running"), ("DELETED", "Running")):
        watch.take({"type": kind, "object": _pod("one", phase, "identity-1")})
    watch.take({"type": "ADDED", "object": _pod("two", "Running")})

    (worker,) = watch.workers("r")
    assert (worker.task_instance["id"], worker.phases, worker.finished) == (
        "identity-1",
        ["Pending", "Running"],
        True,
    )
    assert len(watch.pods()) == 2


def test_a_watch_that_broke_off_fails_the_story() -> None:
    watch = PodWatch(kubectl=None)  # type: ignore[arg-type]  # never asked
    watch.check()
    watch.take({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    with pytest.raises(StoryFailedError, match="too old resource version"):
        watch.check()


def test_the_table_shows_what_is_not_zero_and_the_families_of_the_stories() -> None:
    text = metrics({"steadfast_launches_decided_total": 48.0, "steadfast_pods_revoked_total": 0.0})
    assert "steadfast_launches_decided_total" in text
    assert "48" in text
    assert "steadfast_pods_revoked_total" not in text
    assert "steadfast_reattach_identity_hits_total" in text


def test_a_table_is_as_wide_as_its_widest_cell() -> None:
    assert table([("a", "1"), ("long", "22")], ("name", "n")).splitlines() == [
        "name   n",
        "----  --",
        "a      1",
        "long  22",
    ]
