# SPDX-License-Identifier: Apache-2.0
"""How many launches a question to the database is about, and whether the next loop asks one."""

from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.check import BATCH
from airflow_steadfast.launch_guard.queue import FIRST_ASK
from airflow_steadfast.launch_guard.recheck import SOON
from tests.support.guard_queue import Job, World, plain_launches


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    plain_launches(monkeypatch)


def test_a_queue_says_whether_its_next_loop_asks():
    world = World()
    assert not world.queue.asks_next_loop()
    world.put("a")
    assert world.queue.asks_next_loop()
    world.queue.pause_until(world.now + 1)
    assert not world.queue.asks_next_loop()
    world.now += 1
    assert world.queue.asks_next_loop()
    one = world.take()
    assert not world.queue.asks_next_loop()
    world.queue.put_back(one, retry_at=world.now + 1)
    assert not world.queue.asks_next_loop()
    world.now += 1
    assert world.queue.asks_next_loop()
    world.queue.drain(draining=True)
    assert not world.queue.asks_next_loop()


def test_a_queue_whose_database_does_not_answer_does_not_say_that_it_asks():
    world = World()
    world.put("a")
    world.down = True
    assert world.loop() == []
    assert not world.queue.asks_next_loop()
    world.down, world.now = False, world.now + 1
    assert world.loop(batch=0) == []
    assert not world.queue.asks_next_loop()


def test_a_queue_of_what_cannot_be_compared_does_not_ask():
    world = World()
    world.queue.put(Job("a"))
    assert not world.queue.asks_next_loop()


def test_the_first_question_of_a_loop_is_about_what_it_may_launch_and_the_next_about_all():
    world = World(creation_batch=1)
    names = [f"{number}" for number in range(600)]
    world.loop()
    world.put(*names)
    assert world.loop(batch=1) == ["0"]
    assert world.asked == [FIRST_ASK]
    world.stale = set(names[:-1])
    assert world.loop(batch=1) == ["599"]
    assert world.asked == [FIRST_ASK, FIRST_ASK, 599 - FIRST_ASK]


def test_the_first_question_grows_with_the_creation_batch():
    world = World(creation_batch=100)
    world.loop()
    world.put(*[f"{number}" for number in range(600)])
    world.loop(batch=100)
    assert world.asked == [200]
    world = World(creation_batch=100_000)
    world.loop()
    world.put(*[f"{number}" for number in range(BATCH + 1)])
    world.loop(batch=1)
    assert world.asked == [BATCH]


@pytest.mark.parametrize(("since", "asked"), [(SOON, FIRST_ASK), (1.5 * SOON, 600)])
def test_a_loop_that_is_not_quick_asks_about_all_at_once(since, asked):
    world = World(creation_batch=1)
    world.loop()
    world.put(*[f"{number}" for number in range(600)])
    world.now += since
    world.loop(batch=1)
    assert world.asked == [asked]


def test_the_first_loop_asks_about_all_at_once():
    world = World(creation_batch=1)
    world.put(*[f"{number}" for number in range(600)])
    world.loop(batch=1)
    assert world.asked == [600]
