# SPDX-License-Identifier: Apache-2.0
"""The queue's promises, with a check whose answers the test gives."""

from __future__ import annotations

import dataclasses
import queue
from typing import NamedTuple
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import entry, held
from airflow_steadfast.launch_guard.check import BATCH, CheckFailedError
from airflow_steadfast.launch_guard.launch import Launch
from airflow_steadfast.launch_guard.queue import GuardedQueue
from airflow_steadfast.launch_guard.verdict import Verdict


class TaskInstanceKey(NamedTuple):
    dag_id: str
    task_id: str
    run_id: str
    try_number: int = 1
    map_index: int = -1


class Job(NamedTuple):
    key: str
    ti_id: str = ""


class World:
    """Clock, database and executor of a queue."""

    def __init__(self, **options):
        self.now = 0.0
        self.stale: set[str] = set()
        self.down = False
        self.slow = 0.0
        self.asked: list[int] = []
        self.dropped: list[tuple[Job, str]] = []
        self.queue = GuardedQueue(
            self,
            lambda one, verdict: self.dropped.append((one.job, verdict.reason)),
            max_hold=options.pop("max_hold", 60),
            recheck_age=options.pop("recheck_age", 1),
            clock=lambda: self.now,
            **options,
        )

    def ask(self, launches):
        self.asked.append(len(launches))
        self.now += self.slow
        if self.down:
            raise CheckFailedError("database_error", "down")
        return [Verdict("state_changed" if one.ti_id in self.stale else None) for one in launches]

    def put(self, *names):
        jobs = [Job(name, name) for name in names]
        for job in jobs:
            self.queue.put(job)
        return jobs

    def loop(self, batch=1_000, wait=0.0):
        """One scheduler loop: what was handed out, by key; ``wait`` passes between two of them."""
        self.queue.begin_loop()
        out = []
        for _ in range(batch):
            try:
                out.append(self.queue.get_nowait())
            except queue.Empty:
                break
            self.queue.task_done()
            self.now += wait
        self.queue.end_loop(())
        return [job.key for job in out]


@pytest.fixture(autouse=True)
def plain_launches(monkeypatch):
    def launch_of(job):
        if not job.ti_id:
            raise entry.NotComparableError("unsupported_workload")
        return Launch(job.ti_id, 1, key=TaskInstanceKey("d", job.key, "r"))

    monkeypatch.setattr(entry, "launch_of", launch_of)
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    held.forget_all()


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def test_first_in_first_out_and_one_question_a_loop():
    world = World()
    world.put("a", "b", "c")
    assert world.loop() == ["a", "b", "c"]
    assert world.asked == [3]


def test_an_idle_loop_asks_nothing():
    world = World()
    assert world.loop() == []
    assert world.asked == []


def test_no_verdict_crosses_a_loop():
    world = World()
    world.put("a", "b", "c")
    assert world.loop(batch=1) == ["a"]
    world.stale = {"b"}
    assert world.loop(batch=1) == ["c"]
    assert world.asked == [3, 2]


def test_an_old_verdict_is_asked_for_again_in_one_batch():
    world = World()
    world.put("a", "b", "c")
    world.queue.begin_loop()
    assert world.queue.get_nowait().key == "a"
    world.stale = {"b"}
    world.now += 1.5
    assert world.queue.get_nowait().key == "c"
    assert world.asked == [3, 2]


def test_a_check_slower_than_the_age_limit_still_launches():
    world = World()
    world.slow = 1.9
    world.put("a", "b")
    assert world.loop() == ["a", "b"]
    assert world.asked == [2]


def test_no_age_limit_is_so_small_that_nothing_is_launched():
    world = World(recheck_age=0)
    ticks = iter(range(1, 100))
    world.queue._clock = lambda: float(next(ticks))
    world.put("a")
    assert world.loop() == ["a"]
    assert world.asked == [1]


def test_a_launch_that_fails_open_in_many_loops_counts_once():
    world = World(max_hold=0)
    world.down = True
    before = total("launches_failed_open_total")
    (job,) = world.put("a")
    for _ in range(3):
        world.queue.begin_loop()
        assert world.queue.get_nowait() is job
        world.queue.put(job)
    assert total("launches_failed_open_total") == before + 1


def test_more_than_a_batch_is_asked_in_batches():
    world = World()
    names = [str(number) for number in range(BATCH + 5)]
    world.put(*names)
    world.stale = set(names[:-1])
    assert world.loop(batch=1) == names[-1:]
    assert world.asked == [BATCH, 5]


def test_what_cannot_be_compared_keeps_its_place():
    world = World()
    world.queue.put(Job("command"))
    world.put("a")
    assert world.loop() == ["command", "a"]
    assert total("launch_check_errors_total", reason="unsupported_workload") == 1


def test_a_refused_launch_waits_for_the_next_loop():
    world = World()
    (job,) = world.put("a")
    world.queue.begin_loop()
    world.queue.get_nowait()
    world.queue.put(job)
    with pytest.raises(queue.Empty):
        world.queue.get_nowait()
    assert world.queue.qsize() == 1
    assert world.loop() == ["a"]
    assert total("launches_decided_total") == 1


def test_a_later_requeue_of_the_same_job_is_a_new_launch():
    world = World()
    (job,) = world.put("a")
    world.loop()
    launched = world.queue.launches.of_job("a", job)
    launched.created = True
    first = launched.assign_launch_id()
    world.queue.begin_loop()
    world.queue.put(job)
    assert world.loop() == ["a"]
    assert launched.assign_launch_id() == dataclasses.replace(first, requeue=1, nonce=ANY)
    assert total("launches_decided_total") == 2


def test_the_same_job_twice_is_launched_once():
    world = World()
    (job,) = world.put("a")
    world.queue.put(job)
    assert world.loop() == ["a"]
    assert world.dropped == [(job, "superseded")]


def test_pauses_grow_to_ten_seconds_and_end_with_an_answer():
    world = World(max_hold=1_000)
    world.down = True
    world.put("a")
    asked_at = []
    for _ in range(60):
        before = len(world.asked)
        world.loop()
        if len(world.asked) > before:
            asked_at.append(world.now)
        world.now += 1
    assert asked_at == [0, 1, 3, 7, 15, 25, 35, 45, 55]
    world.down = False
    world.now += 10
    assert world.loop() == ["a"]


def test_a_launch_that_came_during_the_outage_is_held_from_its_own_arrival():
    world = World(max_hold=60)
    world.down = True
    world.put("early")
    world.loop()
    world.now += 50
    world.put("late")
    world.loop()
    world.now += 10
    assert world.loop() == ["early"]
    assert total("launches_held") == 1
    world.now += 50
    assert world.loop() == ["late"]
    assert total("launches_failed_open_total") == 2


def test_held_launches_keep_their_order():
    world = World()
    world.down = True
    world.put("a", "b")
    world.loop()
    world.put("c")
    world.down = False
    world.now += 2
    assert world.loop() == ["a", "b", "c"]


def test_observe_drops_and_holds_nothing():
    world = World(observe=True)
    world.put("a", "b")
    world.put("b")
    world.stale = {"a"}
    assert world.loop() == ["a", "b", "b"]
    assert world.dropped == []
    assert total("workloads_would_drop_total", reason="state_changed") == 1
    assert total("workloads_would_drop_total", reason="superseded") == 1
    world.down = True
    world.put("c", "d")
    assert world.loop(batch=1) == ["c"]
    assert total("launches_held") == 0
    assert world.loop() == ["d"]
    assert total("launches_failed_open_total") == 0


def test_draining_returns_everything_and_asks_nothing():
    world = World()
    world.put("a", "b")
    world.down = True
    world.loop()
    world.put("c")
    asked = list(world.asked)
    world.queue.drain(draining=True)
    assert [world.queue.get_nowait().key for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(queue.Empty):
        world.queue.get_nowait()
    assert world.asked == asked
    world.queue.join()


def test_a_purge_takes_a_task_instance_out_wherever_it_waits():
    world = World()
    world.put("a", "b")
    world.down = True
    world.loop()
    world.queue.purge("a")
    world.down = False
    world.now += 2
    assert world.loop() == ["b"]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("loop"), st.integers(0, 4)),
        st.tuples(st.just("refuse"), st.integers(0, 4)),
        st.tuples(st.just("stale"), st.integers(0, 5)),
        st.tuples(st.just("database"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(0, 70)),
    ),
    max_size=40,
)


@given(OPERATIONS)
@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_job_is_launched_dropped_or_still_there(operations):
    world = World()
    put, launched = [], []
    for what, value in operations:
        if what == "put":
            put += world.put(str(value))
        elif what == "stale":
            world.stale ^= {str(value)}
        elif what == "database":
            world.down = value
        elif what == "wait":
            world.now += value
        else:
            world.queue.begin_loop()
            for _ in range(value):
                try:
                    job = world.queue.get_nowait()
                except queue.Empty:
                    break
                if what == "refuse":
                    world.queue.put(job)
                else:
                    launched.append(job)
            world.queue.end_loop(())
    world.queue.drain(draining=True)
    left = []
    while world.queue.qsize():
        left.append(world.queue.get_nowait())
    ended = launched + left + [job for job, _ in world.dropped]
    assert sorted(map(id, ended)) == sorted(map(id, put))
