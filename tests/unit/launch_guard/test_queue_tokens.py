# SPDX-License-Identifier: Apache-2.0
"""An expired token is a drop; its launch goes on with a new one where one can be had."""

from __future__ import annotations

import pytest

from airflow_steadfast.launch_guard.launch import PodRef
from tests.support.guard_queue import POD, World, plain_launches, total


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    plain_launches(monkeypatch)


def test_an_expired_token_is_a_drop_and_its_launch_goes_on_with_a_new_one():
    world = World()
    (old,) = world.put("a")
    one = world.take()
    first = one.assign_launch_id()
    one.pod, one.requeue, one.former_pods = POD, 1, {PodRef("airflow", "first")}
    world.queue.put_back(one)
    world.tokens.dead = {id(old)}
    renewed = world.take()
    assert renewed.job is not old
    assert [(job is old, reason) for job, reason in world.dropped] == [(True, "token_expired")]
    assert (renewed.launch_id, renewed.pod, renewed.requeue) == (first, POD, 1)
    assert renewed.former_pods == {PodRef("airflow", "first")}
    assert renewed.row == world.row("a")
    assert world.queue.launches.current("a") is renewed
    assert world.queue.launches.of_job("a", old) is None
    assert world.asked == [1, 1]
    assert world.queue.qsize() == 0
    assert total("workloads_dropped_total", reason="token_expired") == 1
    assert total("launches_decided_total") == 1  # the same launch, decided once


def test_a_renewed_copy_that_stays_queued_is_superseded_like_any_other():
    world = World()
    (old,) = world.put("a")
    world.tokens.dead = {id(old)}
    world.put("b")
    world.queue.begin_loop()
    world.queue.get_nowait()
    (newest,) = world.put("a")
    assert world.loop() == ["b", "a"]
    assert world.queue.launches.current("a").job is newest


def test_an_expired_token_that_cannot_be_renewed_is_dropped():
    world = World()
    (old,) = world.put("a")
    world.tokens.dead, world.tokens.refuses = {id(old)}, True
    assert world.loop() == []
    assert world.dropped == [(old, "token_expired")]
    assert world.queue.launches.current("a") is None


def test_a_stale_launch_with_an_expired_token_is_dropped_as_stale_and_not_renewed():
    world = World()
    (old,) = world.put("a")
    world.tokens.dead, world.stale = {id(old)}, {"a"}
    assert world.loop() == []
    assert world.dropped == [(old, "state_changed")]


def test_observe_counts_an_expired_token_and_launches():
    world = World(observe=True)
    (old,) = world.put("a")
    world.tokens.dead = {id(old)}
    world.queue.begin_loop()
    assert world.queue.get_nowait() is old
    assert total("workloads_would_drop_total", reason="token_expired") == 1


def test_a_token_that_expired_during_an_outage_is_renewed_before_the_launch_fails_open():
    world = World(max_hold=60)
    world.down = True
    (old,) = world.put("a")
    world.loop()
    world.tokens.dead = {id(old)}
    world.now += 30
    assert world.loop() == []
    assert world.dropped == []
    world.now += 30
    assert world.loop() == ["a"]
    assert [reason for _, reason in world.dropped] == ["token_expired"]
    assert total("launches_failed_open_total") == 1


def test_an_ageing_token_is_renewed_in_place():
    world = World()
    (old,) = world.put("a")
    world.tokens.old = {id(old)}
    one = world.take()
    assert one.job is not old
    assert world.dropped == []
    assert world.queue.entry_of(one.job) is one
    assert world.queue.entry_of(old) is None
    assert total("launches_decided_total") == 1
