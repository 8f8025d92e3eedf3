# SPDX-License-Identifier: Apache-2.0
"""The check after creation takes part in the queue's SELECT, where there is one."""

from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import INTERVAL, SOON, Alongside, Recheck
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError
from tests.support.guard_queue import QUEUED, Job


class Rows:
    """A database; ``asked`` has the keys of each SELECT."""

    def __init__(self):
        self.gone = set()
        self.asked = []
        self.down = False

    def read(self, keys):
        if self.down:
            raise SnapshotError("database_error", "down")
        self.asked.append(list(keys))
        return {key: Row("queued", 1, 1, QUEUED) for key in keys if key not in self.gone}


class Revoker:
    def __init__(self):
        self.pods = []

    def revoke(self, ref, launch):
        self.pods.append(ref.name)
        return "revoked"


class World:
    def __init__(self):
        self.now = 0.0
        self.rows = Rows()
        self.revoker = Revoker()
        self.recheck = Recheck(
            self.rows, self.revoker, lambda *_: False, lambda *_: None, clock=lambda: self.now
        )
        self.queue_rows = Alongside(self.rows, self.recheck)

    def create(self, *names):
        for name in names:
            entry = Entry(Job(name, name), Launch(name, 1, name))
            entry.launch_id = LaunchId(name, 1, QUEUED, 0)
            entry.pod = PodRef("airflow", name)
            self.recheck.created(entry)


@pytest.fixture
def world():
    return World()


def test_the_rows_of_created_pods_come_with_the_queues_own(world):
    world.create("a", "b")
    assert set(world.queue_rows.read(["c", "d"])) == {"a", "b", "c", "d"}
    assert world.rows.asked == [["c", "d", "a", "b"]]
    world.recheck.end_loop()
    assert len(world.rows.asked) == 1


def test_what_both_ask_for_is_asked_for_once(world):
    world.create("a")
    world.queue_rows.read(["a"])
    assert world.rows.asked == [["a"]]


def test_a_second_of_creation_costs_one_select(world):
    for second in range(10):
        for part in range(10):
            world.now = second * 1.01 * INTERVAL + part / 10
            if part == 0:
                world.queue_rows.read([f"queued {second}"])
            world.create(f"{second}.{part}")
    world.recheck.end_loop()
    assert len(world.rows.asked) == 10 + 1
    looked_at = [key for keys in world.rows.asked for key in keys if not key.startswith("queued")]
    assert sorted(looked_at) == sorted(f"{second}.{part}" for second in range(10) for part in range(10))


def test_a_stale_pod_is_revoked_when_the_next_one_is_created(world):
    world.create("a")
    world.rows.gone = {"a"}
    world.queue_rows.read(["b"])
    assert world.revoker.pods == []
    world.create("b")
    assert world.revoker.pods == ["a"]
    world.recheck.end_loop()
    assert world.revoker.pods == ["a"]


def test_a_stale_pod_is_revoked_when_the_loop_ends(world):
    world.create("a")
    world.rows.gone = {"a"}
    world.queue_rows.read(["b"])
    world.recheck.end_loop()
    assert world.revoker.pods == ["a"]


def test_no_select_grows_beyond_its_limit(world):
    world.create(*(f"pod {number}" for number in range(5)))
    world.queue_rows.read([f"queued {number}" for number in range(MAX_IDS - 2)])
    world.queue_rows.read([f"queued {number}" for number in range(MAX_IDS)])
    world.recheck.end_loop()
    assert [len(keys) for keys in world.rows.asked] == [MAX_IDS, MAX_IDS, 3]


def test_without_an_answer_the_created_pods_are_still_to_be_looked_at(world, caplog):
    world.create("a")
    world.rows.gone = {"a"}
    world.rows.down = True
    with pytest.raises(SnapshotError):
        world.queue_rows.read(["b"])
    assert caplog.messages == [
        "The check after creation gets no answer, created pods are looked at later: down"
    ]
    world.rows.down = False
    world.recheck.end_loop()
    assert world.revoker.pods == []  # a second try in the same loop would only take its time again
    world.now += 1.0
    world.recheck.end_loop()
    assert world.revoker.pods == ["a"]


def test_an_entry_that_cannot_be_judged_does_not_cost_the_queue_its_rows(world, monkeypatch):
    def fail(*_):
        raise ValueError("odd")

    monkeypatch.setattr("airflow_steadfast.launch_guard.recheck.judge_created", fail)
    world.create("a")
    assert set(world.queue_rows.read(["b"])) == {"a", "b"}


@pytest.fixture
def quick(world):
    """A world in its second loop, soon after the first."""
    world.recheck.begin_loop()
    world.now += SOON
    world.recheck.begin_loop()
    return world


def test_pods_of_a_quick_loop_wait_for_the_next_check(quick):
    quick.create("a")
    quick.rows.gone = {"a"}
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == []
    quick.recheck.begin_loop()
    quick.queue_rows.read(["b"])
    quick.create("b")
    assert quick.revoker.pods == ["a"]
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == [["b", "a"]]


def test_no_pod_waits_for_two_loops(quick):
    quick.create("a")
    quick.recheck.end_loop(asked_next=True)
    quick.recheck.begin_loop()
    quick.create("b")
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == [["a", "b"]]


def test_no_pod_waits_where_nothing_is_asked_next(quick):
    quick.create("a")
    quick.recheck.end_loop()
    assert quick.rows.asked == [["a"]]


def test_no_pod_waits_for_a_slow_loop(quick):
    quick.now += 1.01 * SOON
    quick.recheck.begin_loop()
    quick.create("a")
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == [["a"]]


def test_pods_wait_at_the_end_of_a_loop_that_is_just_quick_enough(quick):
    quick.create("a")
    quick.now += SOON
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == []


def test_a_loop_that_has_asked_once_may_ask_again(quick):
    for _ in range(2):
        quick.recheck.begin_loop()
        quick.queue_rows.read(["a"])
        quick.create("a")
        quick.recheck.end_loop()
    assert quick.rows.asked == [["a"]] * 4


def test_no_pod_waits_at_the_end_of_a_slow_loop(quick):
    quick.create("a")
    quick.now += 1.01 * SOON
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked == [["a"]]


def test_no_pod_waits_in_the_first_loop(world):
    world.recheck.begin_loop()
    world.create("a")
    world.recheck.end_loop(asked_next=True)
    assert world.rows.asked == [["a"]]


def test_pods_that_found_no_room_in_a_check_wait_no_longer(quick):
    quick.create("a", "b")
    quick.recheck.end_loop(asked_next=True)
    quick.recheck.begin_loop()
    quick.queue_rows.read([f"queued {number}" for number in range(MAX_IDS - 1)])
    quick.recheck.end_loop(asked_next=True)
    assert quick.rows.asked[1:] == [["b"]]
    quick.create("c")
    quick.recheck.end_loop(asked_next=True)
    assert len(quick.rows.asked) == 2


def test_a_loop_that_has_asked_twice_leaves_its_pods_to_the_next(quick):
    quick.queue_rows.read(["stale"])
    quick.queue_rows.read(["a"])
    quick.create("a")
    quick.recheck.end_loop()
    assert len(quick.rows.asked) == 2
    quick.recheck.begin_loop()
    quick.recheck.end_loop()
    assert quick.rows.asked[2:] == [["a"]]
