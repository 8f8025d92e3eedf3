# SPDX-License-Identifier: Apache-2.0
"""The verdict about a created pod, and what the check after creation does with it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import TRIES, Recheck
from airflow_steadfast.launch_guard.recheck_verdict import judge_created
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError
from airflow_steadfast.launch_guard.verdict import Verdict

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)
T1 = T0 + timedelta(microseconds=1)
LAUNCH = LaunchId("ti", 1, T0)


def row(state="queued", try_number=1, job_id=1, queued_dttm=T0):
    return Row(state, try_number, job_id, queued_dttm)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "task_instance_missing"),
        (row(), None),
        (row(job_id=2), None),
        (row(job_id=None), None),
        (row(try_number=2), "try_superseded"),
        (row("scheduled", try_number=2), "try_superseded"),
        (row("success", try_number=2), "try_superseded"),
        (row(None), "state_changed"),
        (row("scheduled"), "state_changed"),
        (row("removed"), "state_changed"),
        (row("upstream_failed"), "state_changed"),
        (row(queued_dttm=T1), "superseded"),
        (row(queued_dttm=None), None),
        *[
            (row(state, queued_dttm=moment), None)
            for moment in (T0, T1)
            for state in (
                "running",
                "success",
                "failed",
                "up_for_retry",
                "up_for_reschedule",
                "deferred",
                "skipped",
                "restarting",
            )
        ],
        (row("running", try_number=2), None),
        (row("running", job_id=2, queued_dttm=T1), None),
    ],
)
def test_verdicts(found, reason):
    verdict = judge_created(LAUNCH, found)
    assert verdict == Verdict(reason, found)
    assert verdict.fresh is (reason is None)


def test_a_launch_without_a_time_is_not_compared_by_it():
    assert judge_created(LaunchId("ti", 1, None), row(queued_dttm=T1)).fresh


class Job(NamedTuple):
    key: str


class World:
    """The database, the API server and the clock of a check after creation."""

    def __init__(self):
        self.now = 100.0
        self.rows: dict[str, Row] = {}
        self.error: Exception | None = None
        self.reads: list[list[str]] = []
        self.outcomes: dict[str, str] = {}
        self.asked: list[tuple[PodRef, str]] = []
        self.told: list[tuple[str, str, str]] = []
        self.others: set[PodRef] = set()
        self.recheck = Recheck(
            self,
            self,
            lambda _, ref, __: ref in self.others,
            lambda entry, launch, verdict: self.told.append((entry.job.key, launch.ti_id, verdict.reason)),
            lambda: self.now,
        )

    def read(self, keys):
        self.reads.append(list(keys))
        if self.error is not None:
            raise self.error
        return {key: self.rows[key] for key in keys if key in self.rows}

    def revoke(self, ref, launch):
        self.asked.append((ref, launch))
        return self.outcomes.get(ref.name, "revoked")

    def create(self, name, *, present=True, nonce=""):
        entry = Entry(Job(name), Launch(name, 1, None))
        entry.launch_id = LaunchId(name, 1, T0, nonce=nonce)
        entry.pod = PodRef("space", name)
        entry.created = True
        if present:
            self.rows[name] = row()
        self.recheck.created(entry)
        return entry


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    return World()


def errors(reason):
    return signals.totals().value("steadfast_launch_check_errors_total", reason=reason)


def test_a_loop_is_one_read_and_only_void_pods_are_revoked(world):
    world.create("a")
    gone = world.create("b", present=False)
    world.create("c")
    world.recheck.end_loop()
    assert world.reads == [["a", "b", "c"]]
    assert world.asked == [(PodRef("space", "b"), gone.launch_id.text())]
    assert world.told == [("b", "b", "task_instance_missing")]


def test_a_loop_without_pods_reads_nothing(world):
    world.recheck.end_loop()
    world.create("a")
    world.recheck.end_loop()
    world.recheck.end_loop()
    assert world.reads == [["a"]]


def test_a_launch_without_a_verdict_or_a_known_pod_is_not_looked_at(world):
    world.create("a", present=False, nonce="random")
    entry = Entry(Job("b"), Launch("b", 1, None))
    world.recheck.created(entry)
    entry.launch_id = LaunchId("b", 1, T0)
    world.recheck.created(entry)
    world.recheck.end_loop()
    assert world.reads == []


def test_a_long_creation_is_looked_at_each_second(world):
    for name, seconds in [("a", 0.0), ("b", 0.99), ("c", 0.02), ("d", 0.5), ("e", 0.99)]:
        world.now += seconds
        world.create(name)
    world.recheck.end_loop()
    assert world.reads == [["a", "b"], ["c", "d"], ["e"]]


def test_a_pause_before_the_first_pod_is_no_creation(world):
    world.create("a")
    world.recheck.end_loop()
    world.now += 5
    world.create("b")
    world.create("c")
    world.recheck.end_loop()
    assert world.reads == [["a"], ["b", "c"]]


def test_more_pods_than_a_read_may_ask_for_are_asked_in_turn(world):
    for number in range(MAX_IDS + 1):
        world.create(str(number))
    world.recheck.end_loop()
    assert [len(read) for read in world.reads] == [MAX_IDS, 1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(SnapshotError("timeout", "late"), "timeout"), (RuntimeError(), "internal_error")],
)
def test_without_an_answer_nothing_is_revoked_and_each_pod_is_counted(world, error, reason):
    world.error = error
    world.create("a", present=False)
    world.create("b", present=False)
    world.recheck.end_loop()
    assert world.asked == []
    assert errors(reason) == 2
    world.error = None
    world.recheck.end_loop()
    assert len(world.reads) == 1


def test_a_server_that_fails_is_asked_again_a_few_times(world):
    world.outcomes["a"] = "failed"
    world.create("a", present=False)
    for _ in range(TRIES + 3):
        world.recheck.end_loop()
    assert len(world.asked) == TRIES
    assert world.told == []


@pytest.mark.parametrize("outcome", ["started", "gone", "foreign"])
def test_what_is_not_revoked_is_not_told_and_not_asked_again(world, outcome, caplog):
    caplog.set_level("INFO")
    world.outcomes["a"] = outcome
    world.create("a", present=False)
    world.recheck.end_loop()
    world.recheck.end_loop()
    assert len(world.asked) == 1
    assert world.told == []
    assert ("has started" in caplog.text) is (outcome == "started")


def test_a_pod_that_may_be_there_is_revoked_at_the_end_of_the_loop(world):
    entry = Entry(Job("a"), Launch("a", 1, None))
    entry.launch_id = LaunchId("a", 1, T0)
    entry.pod = PodRef("space", "a")
    world.recheck.void(entry, Verdict("superseded"))
    assert world.asked == []
    world.recheck.end_loop()
    world.recheck.end_loop()
    assert world.told == [("a", "a", "superseded")]


def test_a_dropped_launch_without_a_pod_leaves_nothing_to_revoke(world):
    entry = Entry(Job("a"), Launch("a", 1, None))
    world.recheck.void(entry, Verdict("superseded"))
    entry.launch_id = LaunchId("a", 1, T0)
    world.recheck.void(entry, Verdict("superseded"))
    world.recheck.end_loop()
    assert world.asked == []


def test_a_pod_that_a_newer_copy_has_taken_is_not_revoked(world):
    entry = Entry(Job("a"), Launch("a", 1, None))
    entry.launch_id = LaunchId("a", 1, T0)
    entry.pod = PodRef("space", "a")
    world.others.add(entry.pod)
    world.recheck.void(entry, Verdict("superseded"))
    world.recheck.end_loop()
    assert world.asked == []
