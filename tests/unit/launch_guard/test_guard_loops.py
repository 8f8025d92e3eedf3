# SPDX-License-Identifier: Apache-2.0
"""A loop begins and ends in every part of the guard, whichever of them fails."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.guard import Guard
from airflow_steadfast.launch_guard.revocations import Revocations
from airflow_steadfast.launch_guard.stale import SLOW
from tests.support.guard_queue import total

BEGIN = ["queue", "recheck", "creation", "revocations", "results", "free_slots", "rows"]
END = ["recheck", "revocations", "stranded", "queue"]


class Part:
    def __init__(self, name, calls, broken):
        self.name, self.calls, self.broken = name, calls, broken

    def begin_loop(self):
        self.calls.append(self.name)
        if self.name in self.broken:
            raise RuntimeError(self.name)

    def end_loop(self, *_, **__):
        self.begin_loop()

    def asks_next_loop(self):
        return False

    def handed_out(self):
        return ()


def guard(broken=(), *, observe=False):
    calls = []
    made = Guard.__new__(Guard)
    made.observe, made._broken = observe, False
    for name in ("queue", "revocations", "results"):
        setattr(made, name, Part(name, calls, broken))
    for name in ("recheck", "creation", "stranded"):
        setattr(made, f"_{name}", Part(name, calls, broken))
    made._free_failed_slots = Part("free_slots", calls, broken).begin_loop
    made._let_go_of_saved_rows = Part("rows", calls, broken).begin_loop
    return made, calls


@pytest.fixture(autouse=True)
def totals(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())


@pytest.mark.parametrize("broken", BEGIN)
def test_a_loop_begins_in_all_other_parts(broken):
    made, calls = guard({broken})
    made.begin_loop()
    assert calls == BEGIN
    assert total("launch_check_errors_total", reason="internal_error") == 1


@pytest.mark.parametrize("broken", END)
def test_a_loop_ends_in_all_other_parts(broken):
    made, calls = guard({broken})
    made.end_loop(())
    assert calls == END
    assert total("launch_check_errors_total", reason="internal_error") == 1


def test_a_guard_that_observes_touches_neither_slots_nor_pods():
    made, calls = guard(observe=True)
    made.begin_loop()
    assert calls == ["queue", "recheck", "creation", "rows"]


def test_failures_of_every_loop_are_logged_once_and_counted_each(caplog):
    made, _ = guard({"results"})
    with caplog.at_level(logging.ERROR, "airflow_steadfast.launch_guard"):
        for _ in range(50):
            made.begin_loop()
    assert len(caplog.records) == 1
    assert total("launch_check_errors_total", reason="internal_error") == 50


def test_a_result_that_cannot_be_understood_is_the_providers():
    made, _ = guard()
    made.results.handling = lambda results: results.nothing
    assert made.handling(SimpleNamespace()) == "native"
    assert total("launch_check_errors_total", reason="internal_error") == 1


@pytest.mark.parametrize(("takes", "tried"), [(SLOW / 2, 3), (SLOW, 1)])
def test_of_many_revoked_launches_a_silent_server_is_asked_about_one(takes, tried):
    """The scheduler revokes what is stuck one after another, and each try would wait for the time-out."""
    made, _ = guard()
    now, asked, later = [0.0], [], []

    def revoke(ref, _):
        asked.append(ref)
        now[0] += takes
        return "failed"

    launch = SimpleNamespace(pod="pod", launch_id=SimpleNamespace(text=lambda: "launch"))
    made._now = lambda: now[0]
    made._revoker = SimpleNamespace(revoke=revoke)
    made._recheck = SimpleNamespace(revoke_later=lambda *one: later.append(one))
    made.results = SimpleNamespace(revoked=lambda key: [launch])
    made.revocations = Revocations(None, made._revoker, lambda ref: False, made._now)
    for key in "abc":
        made.revoked_by_scheduler(key)
    assert (len(asked), len(later)) == (tried, 3)
    made.revocations.begin_loop()
    made.revoked_by_scheduler("d")
    assert len(asked) == tried + 1
