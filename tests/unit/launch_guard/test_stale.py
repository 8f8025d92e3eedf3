# SPDX-License-Identifier: Apache-2.0
"""Void pods with an API server that refuses, is silent or slow, and pods that are gone already."""

from __future__ import annotations

import logging

import pytest

from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.stale import (
    FEW,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PATIENCE,
    SLOW,
    StalePods,
    Void,
)
from airflow_steadfast.launch_guard.verdict import Verdict
from tests.support.guard_queue import QUEUED, Job

VERDICT = Verdict("superseded")


class Server:
    """Answers each try with ``outcome``, or with that of the pod's own, after ``takes`` seconds."""

    def __init__(self):
        self.now = 100.0
        self.takes = 0.0
        self.outcome = "failed"
        self.outcomes = {}
        self.tried = []
        self.revoked = []
        self.gone = []
        self.claims = set()
        self.pods = StalePods(
            self,
            lambda entry, ref, launch_id: ref.name in self.claims,
            lambda *told: self.revoked.append(told),
            lambda *told: self.gone.append(told),
            lambda: self.now,
        )

    def revoke(self, ref, launch):
        self.tried.append(ref.name)
        self.now += self.takes
        return self.outcomes.get(ref.name, self.outcome)

    def later(self, *names):
        voids = [void(name) for name in names]
        for one in voids:
            self.pods.later(one)
        return voids

    def at_once(self, *names):
        before = len(self.tried)
        for name in names:
            self.pods.revoke(void(name))
        return self.tried[before:]

    def round(self, after=LONGEST_PAUSE):
        self.now += after
        before = len(self.tried)
        self.pods.round()
        return self.tried[before:]


def void(name):
    entry = Entry(Job(name, name), Launch(name, 1, key=name))
    return Void(entry, LaunchId(name, 1, QUEUED), PodRef("airflow", name), VERDICT)


@pytest.fixture
def server():
    return Server()


def test_what_is_revoked_is_told_of_once_with_its_launch_and_verdict(server):
    server.outcome = "revoked"
    (one,) = server.later("a")
    assert server.tried == []
    assert server.round() == ["a"]
    assert server.revoked == [(one.entry, one.launch_id, VERDICT)]
    assert server.gone == []
    assert server.round() == []


def test_a_pod_that_is_gone_is_told_of_with_its_launch_and_verdict(server):
    server.outcome = "gone"
    (one,) = server.later("a")
    assert server.round() == ["a"]
    assert server.gone == [(one.entry, one.launch_id, VERDICT)]
    assert server.revoked == []
    assert server.round() == []


@pytest.mark.parametrize("outcome", ["started", "foreign"])
def test_other_outcomes_end_it_too(outcome, server, caplog):
    server.outcome = outcome
    with caplog.at_level(logging.INFO, "airflow_steadfast.launch_guard"):
        assert server.at_once("a") == ["a"]
    assert server.round() == []
    assert server.revoked == server.gone == []
    said = [record.getMessage() for record in caplog.records]
    assert any("airflow/a" in line and "superseded" in line for line in said) is (outcome == "started")


def test_what_another_launch_has_taken_is_not_touched(server):
    server.claims = {"a"}
    server.later("a", "b")
    assert server.round() == ["b"]
    assert server.at_once("a") == []
    server.outcome = "revoked"
    assert server.round() == ["b"]
    server.claims = set()
    assert server.round() == []


def test_what_fails_at_once_is_tried_again(server):
    assert server.at_once("a") == ["a"]
    server.outcome = "revoked"
    assert server.round(0.0) == ["a"]
    assert len(server.revoked) == 1


def test_a_server_that_fails_is_left_alone_for_longer_and_longer(server):
    server.later("a")
    assert server.round(0.0) == ["a"]
    pauses = []
    for _ in range(6):
        paused = 0.0
        while not server.round(0.5):
            paused += 0.5
        pauses.append(paused + 0.5)
    assert pauses == [FIRST_PAUSE, 2.0, 4.0, 8.0, LONGEST_PAUSE, LONGEST_PAUSE]


def test_an_answer_ends_the_pauses(server):
    server.later("a")
    for _ in range(4):
        server.round()
    server.outcome = "revoked"
    assert server.round() == ["a"]
    server.outcome = "failed"
    server.later("b")
    assert server.round(0.0) == ["b"]
    assert server.round(FIRST_PAUSE) == ["b"]


def test_a_round_that_ends_well_is_followed_by_no_pause(server):
    server.outcomes = {"b": "revoked"}
    server.later("a", "b")
    assert server.round() == ["a", "b"]
    assert server.round(0.0) == ["a"]


def test_a_round_ends_after_a_few_failures_and_the_next_goes_on_with_the_rest(server):
    names = [str(number) for number in range(FEW + 2)]
    server.later(*names)
    assert server.round() == names[:FEW]
    assert server.round() == [*names[FEW:], names[0]]


def test_failures_with_answers_between_them_end_no_round(server):
    server.outcomes = dict.fromkeys("bdfh", "revoked")
    server.later(*"abcdefgh")
    assert server.round() == list("abcdefgh")


@pytest.mark.parametrize("takes", [SLOW, 10 * SLOW])
def test_a_silent_server_is_asked_for_one_pod_a_round(takes, server):
    server.later("a", "b", "c")
    server.takes = takes
    assert [server.round() for _ in range(4)] == [["a"], ["b"], ["c"], ["a"]]


def test_in_a_loop_that_met_silence_no_other_pod_is_tried_at_once(server):
    server.takes = SLOW
    assert server.at_once("a", "b") == ["a"]
    server.takes, server.outcome = 0.0, "revoked"
    assert server.round() == ["a", "b"]
    assert server.at_once("c") == ["c"]


def test_silence_is_forgotten_with_the_next_round_even_if_nothing_is_tried_in_it(server):
    server.takes = SLOW
    server.later("a")
    assert server.round() == ["a"]
    assert server.at_once("b") == []
    assert server.round(FIRST_PAUSE / 2) == []
    assert server.at_once("c") == ["c"]


def test_a_server_that_refuses_at_once_is_not_silent(server):
    server.takes = SLOW * 0.99
    assert server.at_once("a", "b") == ["a", "b"]


def test_a_slow_answer_is_an_answer(server):
    server.takes, server.outcome = 3 * SLOW, "revoked"
    assert server.at_once("a", "b") == ["a", "b"]


@pytest.mark.parametrize("how", ["later", "at_once"])
def test_a_pod_is_tried_for_ten_minutes_and_then_told_of(how, server, caplog):
    assert PATIENCE == 600.0
    getattr(server, how)("a")
    assert server.round(PATIENCE - LONGEST_PAUSE) == ["a"]
    with caplog.at_level(logging.WARNING, "airflow_steadfast.launch_guard"):
        assert server.round(LONGEST_PAUSE) == ["a"]
    assert server.round() == []
    (said,) = caplog.records
    assert said.getMessage() == "Pod airflow/a is void (superseded) and cannot be revoked"
