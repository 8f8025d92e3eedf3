# SPDX-License-Identifier: Apache-2.0
"""Whatever happens, each job that was put is launched, dropped with a reason, or still in the queue."""

from __future__ import annotations

import contextlib
import queue

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from airflow_steadfast import signals
from tests.support.guard_queue import World, plain_launches

NAMES = st.sampled_from("abcdef")
FEW = st.integers(0, 4)


class Scheduler(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        plain_launches(self.patch)
        self.world = World()
        self.put, self.launched = [], []

    def teardown(self):
        self.world.queue.drain(draining=True)
        left = [self.world.queue.get_nowait() for _ in range(self.world.queue.qsize())]
        ended = self.launched + left + [job for job, _ in self.world.dropped]
        assert sorted(map(id, ended)) == sorted(map(id, self.put + self.world.tokens.made))
        self.patch.undo()

    def handed_out(self, most):
        self.world.queue.begin_loop()
        with contextlib.suppress(queue.Empty):
            for _ in range(most):
                yield self.world.queue.get_nowait()
        self.world.queue.end_loop(())

    @rule(name=NAMES)
    def queued(self, name):
        self.put += self.world.put(name)

    @rule(name=NAMES)
    def moved_on_or_back(self, name):
        self.world.stale ^= {name}

    @rule(down=st.booleans())
    def database(self, down):
        self.world.down = down

    @rule(seconds=st.integers(0, 70))
    def time_passes(self, seconds):
        self.world.now += seconds

    @rule(seconds=st.integers(0, 20))
    def rate_limited(self, seconds):
        self.world.queue.pause_until(self.world.now + seconds)

    @rule(name=NAMES, refuses=st.booleans())
    def tokens_expire(self, name, refuses):
        self.world.tokens.refuses = refuses
        known = self.put + self.world.tokens.made
        self.world.tokens.dead |= {id(job) for job in known if job.key == name}

    @rule(name=NAMES)
    def revoked(self, name):
        self.world.queue.purge(name)

    @rule(most=FEW)
    def launches(self, most):
        self.launched += self.handed_out(most)

    @rule(most=FEW)
    def stock_code_puts_back(self, most):
        for job in self.handed_out(most):
            self.world.queue.put(job)

    @rule(most=FEW, seconds=st.integers(0, 70))
    def creation_puts_back(self, most, seconds):
        for job in self.handed_out(most):
            entry = self.world.queue.entry_of(job)
            entry.assign_launch_id()
            self.world.queue.put_back(entry, retry_at=self.world.now + seconds)

    @invariant()
    def one_copy_of_each_order_is_queued(self):
        identities = [entry.launch.identity for entry in self.world.queue._line]
        assert len(identities) == len(set(identities))

    @invariant()
    def what_is_queued_is_in_the_book(self):
        for entry in self.world.queue._line:
            assert self.world.queue.launches.of_job(entry.job.key, entry.job) is entry

    @invariant()
    def every_drop_has_a_reason_and_is_counted(self):
        counted = sum(
            signals.totals().value("steadfast_workloads_dropped_total", reason=reason)
            for reason in signals.catalogue.DROP_REASONS
        )
        assert counted == len(self.world.dropped)
        assert all(reason for _, reason in self.world.dropped)


TestPromise = Scheduler.TestCase
TestPromise.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
