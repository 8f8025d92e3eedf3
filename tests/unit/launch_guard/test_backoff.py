# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

from airflow_steadfast.launch_guard.backoff import FIRST_PAUSE, LONGEST_PAUSE, Backoff


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


def pauses(backoff, clock, count):
    """Fail ``count`` times, each as soon as it is due; the pauses in between."""
    found = []
    for _ in range(count):
        backoff.fail(OSError("down"))
        started = clock.now
        while not backoff.due():
            clock.now += 0.25
        found.append(clock.now - started)
    return found


def test_the_pauses_double_up_to_the_longest_and_start_anew_after_an_answer():
    clock = Clock()
    backoff = Backoff(clock)
    assert backoff.due()
    assert backoff.failing is False
    assert pauses(backoff, clock, 6) == [FIRST_PAUSE, 2, 4, 8, LONGEST_PAUSE, LONGEST_PAUSE]
    assert backoff.failing is True
    backoff.succeed()
    assert backoff.failing is False
    assert backoff.due()
    assert pauses(backoff, clock, 2) == [FIRST_PAUSE, 2]


def test_an_answer_during_a_pause_ends_it():
    backoff = Backoff(Clock())
    backoff.fail(OSError("down"))
    assert not backoff.due()
    backoff.succeed()
    assert backoff.due()


def test_an_outage_is_said_once_and_so_is_its_end(caplog):
    backoff = Backoff(Clock())
    with caplog.at_level(logging.INFO, "airflow_steadfast.launch_guard"):
        backoff.succeed()
        for _ in range(3):
            backoff.fail(OSError("down"))
        for _ in range(2):
            backoff.succeed()
    assert [record.getMessage() for record in caplog.records] == [
        "The launch check gets no answer, queued launches are held: down",
        "The launch check gets answers again",
    ]
