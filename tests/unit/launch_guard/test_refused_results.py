# SPDX-License-Identifier: Apache-2.0
"""Results that the provider cannot work off wait for a later loop, in their order, and none is lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from airflow_steadfast.launch_guard.results import REFUSED_PAUSE, Results
from airflow_steadfast.launch_guard.stale import SLOW
from tests.support.guard_queue import World

REFUSED = ApiException(status=500, reason="Internal Server Error")


def result(name):
    return SimpleNamespace(namespace="airflow", pod_name=name, state="success", key=name)


class Loops(World):
    def __init__(self):
        super().__init__()
        self.given = []
        self.results = Results(
            SimpleNamespace(result_queue=SimpleNamespace(put=self.given.append)), self.queue
        )

    def begin(self, after=0.0):
        self.now += after
        before = len(self.given)
        self.results.begin_loop()
        return [one.pod_name for one in self.given[before:]]


@pytest.fixture
def loops():
    return Loops()


def test_they_are_given_to_the_provider_again_after_a_pause_and_once(loops):
    for name in "abc":
        loops.results.refused(result(name), REFUSED, 0.1)
    assert loops.begin(REFUSED_PAUSE / 2) == []
    assert loops.begin(REFUSED_PAUSE / 2) == ["a", "b", "c"]
    assert loops.begin(REFUSED_PAUSE) == []


def test_the_pause_counts_from_the_first_of_them(loops):
    loops.results.refused(result("a"), REFUSED, 0.1)
    loops.now += REFUSED_PAUSE / 2
    loops.results.postpone(result("b"))
    assert loops.begin(REFUSED_PAUSE / 2) == ["a", "b"]


@pytest.mark.parametrize(("took", "silent"), [(SLOW - 0.1, False), (SLOW, True)])
def test_a_slow_refusal_makes_the_rest_of_the_loop_leave_the_server_alone(took, silent, loops):
    loops.results.refused(result("a"), REFUSED, took)
    assert loops.results.silent is silent
    loops.begin()
    assert not loops.results.silent


def test_at_the_end_of_the_executor_they_are_put_back_at_once(loops):
    loops.results.refused(result("a"), REFUSED, 0.1)
    loops.results.put_back()
    loops.results.put_back()
    assert [one.pod_name for one in loops.given] == ["a"]
