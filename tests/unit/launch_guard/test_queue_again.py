# SPDX-License-Identifier: Apache-2.0
"""Launches that come back: the same one, the next one of its order, or an older copy of a newer one."""

from __future__ import annotations

import dataclasses
import queue

import pytest

from airflow_steadfast.launch_guard.launch import PodRef
from tests.support.guard_queue import LATER, POD, QUEUED, Job, World, plain_launches, total


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    plain_launches(monkeypatch)


def test_a_later_requeue_of_the_same_job_is_a_new_launch():
    world = World()
    (job,) = world.put("a")
    world.loop()
    launched = world.queue.launches.of_job("a", job)
    launched.created, launched.pod = True, POD
    first = launched.assign_launch_id()
    world.queue.begin_loop()
    world.queue.put(job)
    assert (launched.created, launched.pod, launched.former_pods) == (False, None, {POD})
    assert world.loop() == ["a"]
    assert launched.assign_launch_id() == dataclasses.replace(first, requeue=1)
    assert world.queue.launches.current("a") is launched
    assert total("launches_decided_total") == 2


def test_a_launch_put_back_is_the_same_launch_in_the_next_loop():
    world = World()
    world.put("a")
    one = world.take()
    first = one.assign_launch_id()
    one.pod_lacks_patch = True
    world.queue.put_back(one)
    world.queue.put_back(one)
    assert one.pod_lacks_patch is False
    assert world.queue.qsize() == 1
    with pytest.raises(queue.Empty):
        world.queue.get_nowait()
    assert world.take() is one
    assert one.assign_launch_id() == first
    assert total("launches_decided_total") == 1


def test_a_job_that_comes_back_in_a_later_loop_without_a_pod_is_the_same_launch():
    world = World()
    (job,) = world.put("a")
    one = world.take()
    first = one.assign_launch_id()
    world.queue.begin_loop()
    world.queue.put(job)
    assert world.take() is one
    assert one.assign_launch_id() == first


@pytest.mark.parametrize("same_loop", [True, False])
def test_what_the_stock_code_created_comes_back_as_a_requeue_only_in_a_later_loop(same_loop):
    world = World()
    (job,) = world.put("a")
    one = world.take()
    one.pod_unknown = True
    if not same_loop:
        world.queue.begin_loop()
    world.queue.put(job)
    assert world.take() is one
    assert one.requeue == (0 if same_loop else 1)


def test_a_launch_is_not_handed_out_before_its_time():
    world = World()
    world.put("a", "b")
    one = world.take()
    world.queue.put_back(one, retry_at=5.0)
    world.now = 4.9
    assert world.loop() == ["b"]
    assert world.queue.qsize() == 1
    assert world.asked == [2, 1]
    world.now = 5.0
    assert world.loop() == ["a"]


def test_a_pause_holds_everything_back_and_the_longer_one_holds():
    world = World()
    world.put("a")
    world.queue.pause_until(10.0)
    world.queue.pause_until(5.0)
    world.now = 9.9
    assert world.loop() == []
    assert world.asked == []
    world.now = 10.0
    assert world.queue.now() == 10.0
    assert world.loop() == ["a"]


def test_draining_knows_no_pause_and_no_retry_time():
    world = World()
    world.put("a", "b")
    world.queue.put_back(world.take(), retry_at=100.0)
    world.queue.pause_until(100.0)
    world.queue.drain(draining=True)
    assert {world.queue.get_nowait().key for _ in range(2)} == {"a", "b"}
    assert world.queue.qsize() == 0
    world.queue.drain(draining=False)
    with pytest.raises(queue.Empty):
        world.queue.get_nowait()


def test_a_newer_copy_stays_when_the_older_one_is_put_back():
    world = World()
    (old,) = world.put("a")
    one = world.take()
    one.pod, one.requeue = POD, 2
    (new,) = world.put("a")
    world.queue.put_back(one)
    assert [(job is old, reason) for job, reason in world.dropped] == [(True, "superseded")]
    newer = world.take()
    assert newer.job is new
    assert world.queue.qsize() == 0


def test_a_newer_copy_takes_over_what_the_older_one_knew_of_pods():
    world = World()
    world.put("a")
    one = world.take()
    one.pod, one.requeue, one.former_pods = POD, 2, {PodRef("airflow", "first")}
    world.queue.put_back(one)
    world.put("a")
    newer = world.take()
    assert newer is not one
    assert newer.requeue == 2
    assert newer.former_pods == {POD, PodRef("airflow", "first")}
    assert newer.pod is None
    assert world.queue.launches.of_pod("a", POD) is newer


def test_a_tried_launch_whose_order_was_replaced_is_dropped():
    world = World()
    world.put("a", "b")
    world.queue.begin_loop()
    tried = world.queue.entry_of(world.queue.get_nowait())
    untried = world.queue.entry_of(world.queue.get_nowait())
    tried.assign_launch_id()
    for one in (tried, untried):
        world.queue.put_back(one)
    world.queued_at = {"a": LATER, "b": LATER}
    assert world.loop() == ["b"]
    assert [(job.key, reason) for job, reason in world.dropped] == [("a", "superseded")]
    assert world.dropped_rows == [world.row("a")]
    assert untried.assign_launch_id().queued_dttm == LATER


def test_a_launch_without_a_verdict_gets_an_identity_of_its_own_and_keeps_it():
    world = World(max_hold=0)
    world.down = True
    world.put("a")
    one = world.take()
    first = one.assign_launch_id()
    assert first.nonce
    assert first.queued_dttm is None
    world.queue.put_back(one)
    world.down = False
    world.now += 20
    assert world.take() is one
    assert one.assign_launch_id() is first
    assert one.row.queued_dttm == QUEUED


def test_what_cannot_be_compared_has_no_identity():
    world = World()
    world.queue.put(Job("command"))
    assert world.take().assign_launch_id() is None


def test_what_was_created_after_all_leaves_the_queue_without_a_drop():
    world = World()
    world.put("a")
    one = world.take()
    world.queue.put_back(one)
    world.queue.take_out(one)
    world.queue.take_out(one)
    assert world.queue.qsize() == 0
    assert not one.queued
    assert world.dropped == []
    world.put("a")
    assert world.dropped == []


def test_a_key_s_other_launch_is_live_while_it_is_queued_in_flight_or_has_a_pod():
    world = World()
    first = Job("key", "a")
    world.queue.put(first)
    second = Job("key", "b")
    world.queue.put(second)
    world.queue.begin_loop()
    queued = world.queue.launches.of_job("key", second)
    one = world.queue.launches.of_job("key", first)
    assert world.queue.other_live(queued) is one
    assert world.queue.other_live(one) is queued
    assert world.queue.get_nowait() is first
    assert world.queue.other_live(queued) is one
    world.queue.begin_loop()
    assert world.queue.other_live(queued) is None
    one.created = True
    assert world.queue.other_live(queued) is one
    one.created, one.pod_unknown = False, True
    assert world.queue.other_live(queued) is one


def test_dropping_a_queued_launch_makes_the_one_with_a_pod_current_again():
    world = World()
    world.queue.put(Job("key", "a"))
    running = world.take()
    running.created = True
    world.queue.put(Job("key", "b"))
    world.stale = {"b"}
    assert world.loop() == []
    assert world.queue.launches.current("key") is running


def test_a_requeued_launch_is_its_keys_current_one():
    world = World()
    first = Job("key", "a")
    world.queue.put(first)
    one = world.take()
    one.created = True
    world.queue.put(Job("key", "b"))
    world.queue.put(first)
    assert world.queue.launches.current("key") is one
