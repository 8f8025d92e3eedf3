# SPDX-License-Identifier: Apache-2.0
"""The check after creation: which created pods are void, when they are looked at, what is tried again."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import INTERVAL, MOST_UNSEEN, Recheck, row_keys
from airflow_steadfast.launch_guard.recheck_verdict import judge_created
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError
from airflow_steadfast.launch_guard.verdict import Verdict
from tests.support.guard_queue import LATER, QUEUED, Job, total

LAUNCH = LaunchId("a", 1, QUEUED)
FRESH = Row("queued", 1, 7, QUEUED)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (FRESH, None),
        (None, "task_instance_missing"),
        (FRESH._replace(try_number=2), "try_superseded"),
        (FRESH._replace(queued_dttm=LATER), "superseded"),
        (FRESH._replace(queued_dttm=None), None),
        (FRESH._replace(queued_by_job_id=8), None),
        (FRESH._replace(state=None), "state_changed"),
        (FRESH._replace(state="scheduled"), "state_changed"),
        (FRESH._replace(state="removed"), "state_changed"),
        (FRESH._replace(state="upstream_failed"), "state_changed"),
        (FRESH._replace(state="running"), None),
        (FRESH._replace(state="running", try_number=2, queued_dttm=LATER, queued_by_job_id=8), None),
        (FRESH._replace(state="success"), None),
        (FRESH._replace(state="failed", queued_dttm=LATER), None),
        (FRESH._replace(state="up_for_retry"), None),
        (FRESH._replace(state="deferred"), None),
        (FRESH._replace(state="scheduled", try_number=2), "try_superseded"),
    ],
)
def test_a_pod_is_void_only_if_the_row_shows_that_it_never_ran(row, reason):
    assert judge_created(LAUNCH, row) == Verdict(reason, row)


def test_a_launch_without_a_queue_time_is_not_taken_for_replaced():
    assert judge_created(replace(LAUNCH, queued_dttm=None), FRESH).fresh


class World:
    """Rows, a revoker with answers, and what the guard is told."""

    def __init__(self):
        self.now = 0.0
        self.gone: set[str] = set()
        self.error: Exception | None = None
        self.asked: list[list[str]] = []
        self.answers: dict[str, str] = {}
        self.tried: list[tuple[PodRef, str]] = []
        self.told: list[tuple[str, LaunchId, str]] = []
        self.taken: list[tuple[Entry, PodRef, LaunchId]] = []
        self.claims = False
        self.recheck = Recheck(self, self, self.claimed, self.revoked, clock=lambda: self.now)

    def read(self, keys):
        self.asked.append(list(keys))
        if self.error is not None:
            raise self.error
        return {key: FRESH for key in keys if key not in self.gone}

    def revoke(self, ref, launch):
        self.tried.append((ref, launch))
        return self.answers.get(ref.name, "revoked")

    def claimed(self, entry, ref, launch_id):
        self.taken.append((entry, ref, launch_id))
        return self.claims

    def revoked(self, entry, launch_id, verdict):
        self.told.append((entry.job.key, launch_id, verdict.reason))

    def create(self, *names, **more):
        made = [entry_of(name, **more) for name in names]
        for entry in made:
            self.recheck.created(entry)
        return made

    def loop(self):
        """End a loop; the pods that were tried to be revoked in it."""
        before = len(self.tried)
        self.recheck.end_loop()
        return [ref.name for ref, _ in self.tried[before:]]


def entry_of(name, **more):
    entry = Entry(Job(name, name), Launch(name, 1, key=name))
    entry.launch_id, entry.pod = LaunchId(name, 1, QUEUED), PodRef("airflow", name)
    for field, value in more.items():
        setattr(entry, field, value)
    return entry


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    return World()


def test_pods_of_a_loop_are_looked_at_once_at_its_end(world):
    world.create("a", "b")
    assert world.asked == []
    assert world.loop() == []
    assert world.asked == [["a", "b"]]
    assert world.loop() == []
    assert len(world.asked) == 1


def test_a_void_pod_is_revoked_by_name_and_annotation_and_told_of(world):
    (entry, _) = world.create("a", "b")
    world.gone = {"a"}
    assert world.loop() == ["a"]
    assert world.tried == [(entry.pod, entry.launch_id.text())]
    assert world.taken == [(entry, entry.pod, entry.launch_id)]
    assert world.told == [("a", entry.launch_id, "task_instance_missing")]
    assert world.loop() == []


@pytest.mark.parametrize(
    "more", [{"launch_id": None}, {"pod": None}, {"launch_id": LaunchId("a", 1, None, nonce="x")}]
)
def test_what_has_no_verdict_or_no_pod_is_not_looked_at(more, world):
    world.create("a", **more)
    world.loop()
    assert world.asked == []


@pytest.mark.parametrize("lost", ["launch", "launch_id", "pod"])
def test_what_lost_its_pod_since_is_left_out_and_the_rest_judged(lost, world):
    (entry, _) = world.create("a", "b")
    setattr(entry, lost, None)
    world.gone = {"a", "b"}
    assert world.loop() == ["b"]


def test_creation_that_takes_a_second_is_looked_at_in_between(world):
    world.create("a")
    world.now = INTERVAL - 0.01
    world.create("b")
    assert world.asked == []
    world.now = INTERVAL
    world.gone = {"a"}
    world.create("c")
    assert world.asked == [["a", "b"]]
    assert [ref.name for ref, _ in world.tried] == ["a"]
    world.now = 2 * INTERVAL - 0.01
    world.create("d")
    assert len(world.asked) == 1
    world.now = 2 * INTERVAL
    world.create("e")
    assert world.asked[1:] == [["c", "d"]]


def test_the_second_counts_from_the_first_pod_that_nobody_has_looked_at(world):
    world.now = 100.0
    world.create("a")
    world.now = 100.0 + INTERVAL / 2
    world.create("b")
    assert world.asked == []
    world.loop()
    world.now = 200.0
    world.create("c")
    world.now = 200.0 + INTERVAL / 2
    world.create("d")
    assert world.asked == [["a", "b"]]


def test_a_look_is_no_larger_than_a_select_may_be(world):
    world.create(*(str(number) for number in range(MAX_IDS + 2)))
    world.loop()
    assert [len(keys) for keys in world.asked] == [MAX_IDS, 2]


def test_what_a_look_had_no_room_for_waits_a_second_more(world):
    world.create(*(str(number) for number in range(MAX_IDS + 1)))
    world.now = INTERVAL
    world.create("a")
    world.now = 1.5 * INTERVAL
    world.create("b")
    assert [len(keys) for keys in world.asked] == [MAX_IDS]
    world.now = 2 * INTERVAL
    world.create("c")
    assert world.asked[1:] == [[str(MAX_IDS), "a", "b"]]


@pytest.mark.parametrize("reason", ["timeout", "database_error", "connection_error"])
def test_without_an_answer_the_pods_are_counted_and_looked_at_later(reason, world):
    world.create("a", "b")
    world.gone, world.error = {"a", "b"}, SnapshotError(reason, "late")
    assert world.loop() == []
    assert total("launch_check_errors_total", reason=reason) == 2
    world.error = None
    assert world.loop() == []
    assert len(world.asked) == 1
    world.now += 1.0
    assert world.loop() == ["a", "b"]
    assert len(world.asked) == 2


def test_no_answer_is_told_of_with_its_reason_and_so_is_the_next_answer(world, caplog):
    world.create("a")
    world.error = SnapshotError("timeout", "it was late")
    with caplog.at_level(logging.INFO, "airflow_steadfast.launch_guard"):
        world.loop()
        world.error, world.now = None, world.now + 1
        world.loop()
    assert [record.getMessage() for record in caplog.records] == [
        "The check after creation gets no answer, created pods are looked at later: it was late",
        "The check after creation gets answers again",
    ]


def test_a_database_that_does_not_answer_is_left_alone_for_longer_and_longer(world):
    world.create("a")
    world.error = SnapshotError("timeout", "late")
    for _ in range(40):
        world.loop()
        world.now += 0.5
    assert len(world.asked) == 5  # at 0, 1, 3, 7 and 15 of 20 seconds


def test_after_a_failure_of_our_own_the_rest_waits_for_the_next_loop(world):
    world.create(*(str(number) for number in range(MAX_IDS + 2)))
    world.error = ValueError("odd")
    world.loop()
    assert len(world.asked) == 1
    world.error = None
    world.loop()
    assert [len(keys) for keys in world.asked] == [MAX_IDS, 2]


def test_a_wanted_pod_is_judged_by_its_launch(world):
    world.create("wanted", "a")
    world.gone = {"a"}
    assert world.loop() == ["a"]
    assert total("launch_check_errors_total", reason="internal_error") == 0


@pytest.mark.parametrize("error", [ValueError("odd"), SnapshotError("internal_error", "odd")])
def test_a_failure_of_our_own_is_counted_and_not_repeated(error, world):
    world.create("a", "b")
    world.gone, world.error = {"a", "b"}, error
    assert world.loop() == []
    assert total("launch_check_errors_total", reason="internal_error") == 2
    world.error = None
    world.now += 60.0
    assert world.loop() == []
    assert len(world.asked) == 1


def test_the_newest_pods_are_remembered_for_a_database_that_answers_late(world):
    world.recheck._backoff.fail(SnapshotError("timeout", "late"))
    world.create(*(str(number) for number in range(MOST_UNSEEN + 2)))
    world.recheck.no_answer(SnapshotError("timeout", "late"))
    world.now += 60.0
    world.loop()
    looked_at = [key for keys in world.asked for key in keys]
    assert looked_at == [str(number) for number in range(2, MOST_UNSEEN + 2)]


def test_a_database_that_has_nothing_to_be_asked_is_not_blamed(world, caplog):
    world.recheck.no_answer(SnapshotError("timeout", "late"))
    world.create("a")
    world.loop()
    assert world.asked == [["a"]]
    assert caplog.records == []


def test_an_answer_to_the_queue_ends_the_pause(world):
    (entry,) = world.create("a")
    world.recheck.no_answer(SnapshotError("timeout", "late"))
    world.recheck.saw([entry], {"a": FRESH})
    world.create("b")
    world.loop()
    assert world.asked == [["b"]]


def test_a_failure_while_judging_what_the_queue_read_is_counted(world):
    (entry,) = world.create("a")
    world.recheck.saw([entry], None)
    assert total("launch_check_errors_total", reason="internal_error") == 1
    assert world.loop() == []
    assert world.asked == []


def test_only_what_was_looked_at_with_the_queue_is_done(world):
    first, second, third = world.create("a", "b", "c")
    assert world.recheck.due(2) == [first, second]
    assert world.recheck.due(0) == world.recheck.due(-5) == []
    world.recheck.saw([first, second], {"a": FRESH, "b": FRESH})
    assert world.recheck.due(5) == [third]
    world.loop()
    assert world.asked == [["c"]]


def test_a_look_with_the_queue_starts_the_second_anew(world):
    entries = world.create("a", "b")
    world.now = INTERVAL
    world.recheck.saw(entries[:1], {"a": FRESH})
    world.now = INTERVAL * 1.5
    world.create("c")
    assert world.asked == []


def test_a_pod_that_another_launch_has_taken_is_left_alone(world):
    world.create("a")
    world.gone, world.claims = {"a"}, True
    assert world.loop() == []
    assert world.told == []


def test_a_refusal_that_ends_is_told_of_once_with_its_verdict(world):
    (entry,) = world.create("a")
    world.gone, world.answers = {"a"}, {"a": "failed"}
    world.loop()
    assert len(world.asked) == 1
    world.answers = {}
    assert world.loop() == ["a"]
    assert world.told == [("a", entry.launch_id, "task_instance_missing")]
    assert world.loop() == []


@pytest.mark.parametrize("outcome", ["started", "gone", "foreign"])
def test_other_outcomes_end_it(outcome, world, caplog):
    world.create("a")
    world.gone, world.answers = {"a"}, {"a": outcome}
    with caplog.at_level(logging.INFO, "airflow_steadfast.launch_guard"):
        assert world.loop() == ["a"]
    assert world.loop() == []
    assert world.told == []
    said = [record.getMessage() for record in caplog.records]
    assert any("airflow/a" in line and "has started" in line for line in said) is (outcome == "started")


def test_the_pod_that_a_dropped_launch_may_have_made_is_void_without_a_look(world):
    entry = entry_of("a")
    world.recheck.void(entry, Verdict("superseded"))
    assert world.tried == []
    assert world.loop() == ["a"]
    assert world.told == [("a", entry.launch_id, "superseded")]
    assert world.asked == []


def test_a_pod_to_be_revoked_later_is_so_whatever_its_row_says(world):
    entry = entry_of("a")
    world.recheck.revoke_later(entry, Verdict("superseded", FRESH))
    assert world.loop() == ["a"]
    assert world.told == [("a", entry.launch_id, "superseded")]


@pytest.mark.parametrize("more", [{"launch_id": None}, {"pod": None}])
def test_a_dropped_launch_that_made_no_pod_leaves_nothing_to_revoke(more, world):
    world.recheck.void(entry_of("a", **more), Verdict("superseded"))
    world.recheck.void(entry_of("a", **more), Verdict("superseded", FRESH._replace(queued_dttm=LATER)))
    world.recheck.revoke_later(entry_of("a", **more), Verdict("superseded"))
    assert world.loop() == []


def test_each_row_is_asked_for_once_and_what_cannot_be_compared_not_at_all():
    assert row_keys([entry_of("a"), entry_of("b"), entry_of("a"), Entry("command")]) == ["a", "b"]
