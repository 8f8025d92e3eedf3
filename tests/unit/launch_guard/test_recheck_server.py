# SPDX-License-Identifier: Apache-2.0
"""The check after creation with an API server that is silent or slow, and with pods that are gone already."""

from __future__ import annotations

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import SLOW, TRIES, Recheck
from airflow_steadfast.launch_guard.verdict import Verdict
from tests.support.guard_queue import QUEUED, Job

VOID = Verdict("superseded")


class Server:
    """Answers each try with ``outcome`` after ``takes`` seconds."""

    def __init__(self):
        self.now = 100.0
        self.takes = 0.0
        self.outcome = "failed"
        self.tried = []
        self.revoked = []
        self.gone = []
        self.recheck = Recheck(
            self,
            self,
            lambda *_: False,
            lambda *told: self.revoked.append(told),
            clock=lambda: self.now,
            gone=lambda *told: self.gone.append(told),
        )

    def read(self, keys):
        raise AssertionError("nothing is to be read")

    def revoke(self, ref, launch):
        self.tried.append(ref.name)
        self.now += self.takes
        return self.outcome

    def void(self, *names):
        entries = []
        for name in names:
            entry = Entry(Job(name, name), Launch(name, 1, key=name))
            entry.launch_id, entry.pod = LaunchId(name, 1, QUEUED), PodRef("airflow", name)
            self.recheck.void(entry, VOID)
            entries.append(entry)
        return entries

    def loop(self):
        before = len(self.tried)
        self.recheck.end_loop()
        return self.tried[before:]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    return Server()


@pytest.mark.parametrize("takes", [SLOW, 10 * SLOW])
def test_a_silent_server_is_asked_for_one_pod_a_loop(takes, server):
    server.void("a", "b", "c")
    server.takes = takes
    assert [server.loop() for _ in range(2)] == [["a"], ["a"]]
    assert server.revoked == []


def test_what_was_not_tried_for_silence_is_tried_as_soon_as_there_are_answers(server):
    server.void("a", "b", "c")
    server.takes = SLOW
    server.loop()
    server.takes, server.outcome = 0.0, "revoked"
    assert server.loop() == ["a", "b", "c"]
    assert len(server.revoked) == 3
    assert server.loop() == []


def test_a_server_that_refuses_at_once_is_asked_for_each_pod(server):
    server.void("a", "b")
    server.takes = SLOW * 0.99
    assert server.loop() == ["a", "b"]


def test_a_slow_answer_is_an_answer(server):
    server.void("a", "b")
    server.takes, server.outcome = 3 * SLOW, "revoked"
    assert server.loop() == ["a", "b"]


def test_silence_ends_with_the_tries(server):
    server.void("a")
    server.takes = SLOW
    assert [server.loop() for _ in range(TRIES + 1)] == [["a"]] * TRIES + [[]]


def test_a_pod_that_is_gone_is_told_of_with_its_launch_and_verdict(server):
    (entry,) = server.void("a")
    server.outcome = "gone"
    assert server.loop() == ["a"]
    assert server.gone == [(entry, entry.launch_id, VOID)]
    assert server.revoked == []
    assert server.loop() == []
