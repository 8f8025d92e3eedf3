# SPDX-License-Identifier: Apache-2.0
"""The queue's promises, with a check whose answers the test gives."""

from __future__ import annotations

import queue

import pytest

from airflow_steadfast.launch_guard.check import BATCH
from tests.support.guard_queue import Job, World, plain_launches, total


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    plain_launches(monkeypatch)


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


def test_a_verdict_is_good_until_it_is_older_than_its_limit():
    world = World(recheck_age=1)
    world.put("a", "b")
    world.queue.begin_loop()
    world.queue.get_nowait()
    world.now += 1
    world.queue.get_nowait()
    assert world.asked == [2]


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
    world.put("a", "b")
    assert world.loop() == ["a", "b"]
    assert world.asked == [2, 1]


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


def test_held_launches_of_several_queues_are_summed():
    worlds = [World(), World()]
    for world in worlds:
        world.down = True
        world.put("a", "b")
        world.loop()
    assert total("launches_held") == 4
    worlds[0].queue.drain(draining=True)
    assert total("launches_held") == 2
    worlds[1].down = False
    worlds[1].now += 2
    worlds[1].loop()
    assert total("launches_held") == 0


def test_a_launch_refused_by_an_earlier_failure_of_the_guard_is_not_lost(monkeypatch, caplog):
    world = World()
    jobs = world.put("a", "b", "c")
    world.queue.begin_loop()
    monkeypatch.setattr(world.queue, "_next", lambda: 1 / 0)
    out = [world.queue.get_nowait() for _ in jobs]
    assert [id(job) for job in out] == [id(job) for job in jobs]
    assert all(world.queue.entry_of(job).unguarded for job in jobs)
    with pytest.raises(queue.Empty):
        world.queue.get_nowait()
    assert total("launch_check_errors_total", reason="internal_error") == 4
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.exc_info[0] is ZeroDivisionError
    assert "left to the stock check" in line.getMessage()


def test_a_report_that_fails_does_not_keep_the_dropped_launch():
    world = World()
    world.queue._on_drop = lambda *_: 1 / 0
    world.put("a", "b")
    world.stale = {"a"}
    assert world.loop() == ["b"]
    assert world.queue.launches.current("a") is None
    assert total("workloads_dropped_total", reason="state_changed") == 1


def test_launches_that_fail_open_together_are_the_guards_own(caplog):
    world = World(max_hold=0)
    world.down = True
    world.put("a", "b", "c")
    world.queue.begin_loop()
    out = [world.queue.entry_of(world.queue.get_nowait()) for _ in range(3)]
    assert [one.verdict_at for one in out] == [None] * 3
    assert not any(one.unguarded for one in out)
    assert total("launch_check_errors_total", reason="internal_error") == 0


def test_a_launch_that_cannot_be_settled_is_left_to_the_stock_check_alone(monkeypatch, caplog):
    world = World()
    world.put("a", "b")
    world.queue.begin_loop()

    def settle(entry, verdicts):
        if entry.launch.ti_id == "a":
            raise KeyError("odd")
        world.queue._line.ready.append(entry)

    monkeypatch.setattr(world.queue._settling, "_settle", settle)
    out = [world.queue.entry_of(world.queue.get_nowait()) for _ in range(2)]
    assert [(one.launch.ti_id, one.unguarded) for one in out] == [("a", True), ("b", False)]
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.exc_info[0] is KeyError


def test_nothing_is_held_once_there_are_answers_even_where_not_all_were_asked_about_yet():
    world = World()
    world.down = True
    world.put(*(str(number) for number in range(BATCH + 5)))
    world.loop()
    assert total("launches_held") == BATCH + 5
    world.down = False
    world.now += 2
    assert len(world.loop(batch=1)) == 1
    assert world.asked == [BATCH, BATCH]
    assert total("launches_held") == 0


def test_launches_of_keys_that_are_neither_running_nor_queued_are_forgotten_once_there_are_many():
    world = World()
    world.put(*(str(number) for number in range(1_100)))
    world.queue.begin_loop()
    while world.queue.qsize():
        world.queue.get_nowait()
    world.put("queued")
    world.queue.end_loop({"5"})
    known = world.queue.launches
    assert known.current("queued") is not None
    assert known.current("5") is not None
    assert known.current("6") is None


def test_a_long_queue_lets_the_book_grow():
    world = World()
    world.put(*(str(number) for number in range(1_050)))
    world.loop()
    world.put(*(f"queued {number}" for number in range(60)))
    world.queue.end_loop(())
    assert world.queue.launches.current("6") is not None


def test_the_cause_of_an_outage_is_said(caplog):
    world = World()
    world.down = True
    world.put("a")
    world.loop()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("are held: down")


def test_an_answer_for_too_few_is_an_answer_for_none_of_them(monkeypatch):
    world = World()
    world.put("a", "b")
    ask = world.ask
    monkeypatch.setattr(world, "ask", lambda launches: ask(launches)[:1])
    world.queue.begin_loop()
    out = [world.queue.entry_of(world.queue.get_nowait()) for _ in range(2)]
    # the second one is asked about again, alone
    assert [one.unguarded for one in out] == [True, False]
    assert world.asked == [2, 1]


def test_a_launch_that_cannot_be_noted_is_handed_out_all_the_same(monkeypatch, caplog):
    world = World()
    (job,) = world.put("a")
    monkeypatch.setattr(world.tokens, "refresh", lambda _: 1 / 0)
    world.queue.begin_loop()
    assert world.queue.get_nowait() is job
    assert world.queue.qsize() == 0
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.exc_info[0] is ZeroDivisionError
