# SPDX-License-Identifier: Apache-2.0
"""One work loop: what it counts, how often it asks, and what becomes of a read that hangs."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar import poller as pollers
from steadfast_sidecar.poller import Poller
from steadfast_sidecar.sources import Reading, Reason, SourceError
from steadfast_sidecar.tally import Tally

ERRORS = series_key("steadfast_collector_errors_total", {"source": "outbox"})
UP = series_key("steadfast_source_up", {"source": "outbox"})
HITS = series_key("steadfast_reattach_identity_hits_total", {})
PATIENCE_SECONDS = 30


class Hanging:
    """A source whose reads after the first hang until they are cut off or released."""

    name = "outbox"

    def __init__(self, first=None):
        self.first = first
        self.reads = 0
        self.free = threading.Event()
        self.interrupted = threading.Event()

    def read(self):
        self.reads += 1
        if self.first is not None:
            reading, self.first = self.first, None
            return reading
        assert self.free.wait(PATIENCE_SECONDS)
        if self.interrupted.is_set():
            raise SourceError("database", "connection cut")
        return Reading()

    def interrupt(self):
        self.interrupted.set()
        self.free.set()


class Failing:
    name = "outbox"

    def __init__(self, code):
        self.code = code

    def read(self):
        raise SourceError(self.code, "why")

    def interrupt(self):
        pass


def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "counted", "turns"),
    [
        ("database", 3, 1),  # fails anew each time
        ("internal:KeyError", 3, 1),
        ("missing", 3, 1),
        ("no_tables", 1, pollers.LASTING_TURNS),  # holds until somebody does something
        ("no_database", 1, pollers.LASTING_TURNS),
        ("unsupported_database", 1, pollers.LASTING_TURNS),
        ("no_state_store", 0, pollers.LASTING_TURNS),  # a sound Airflow below 3.3
        ("not_yet", 0, 1),  # a sound start
    ],
)
def test_what_three_reads_of_a_source_that_is_down_count(code, counted, turns, caplog):
    tally = Tally(["outbox"])
    poller = Poller(Failing(code), tally, 5)
    assert [poller.poll() for _ in range(3)] == [5 * turns] * 3
    assert tally.view().values[ERRORS] == counted
    assert tally.view().values[UP] == 0, "down is down, whether or not it is an error"
    assert len(caplog.records) == 1


def test_a_lasting_condition_that_comes_back_is_counted_again():
    tally = Tally(["outbox"])
    for _ in range(2):
        tally.reject("outbox", Reason("no_tables", "why"))
        tally.reject("outbox", Reason("no_tables", "why"))
        tally.accept("outbox", Reading())
    assert tally.view().values[ERRORS] == 2


def test_a_read_that_hangs_is_told_and_cut_off_and_the_last_numbers_stay(monkeypatch, caplog):
    monkeypatch.setattr(pollers, "STALLED_AFTER_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    tally = Tally(["outbox"])
    source = Hanging(first=Reading(values={HITS: 4.0}))
    poller = Poller(source, tally, 0.01)
    poller.start()
    until(lambda: source.reads == 2)
    assert tally.view().values[UP] == 1
    source.interrupt = lambda: None
    time.sleep(0.06)  # longer than a read may take here
    for _ in range(3):
        poller.watch()
    view = tally.view()
    assert (view.values[UP], view.values[HITS], view.values[ERRORS]) == (0, 4, 1)
    assert tally.health()["outbox"].code == "stalled"
    assert poller.progresses(), "a restart would not help a database that is silent"
    del source.interrupt
    poller.watch()
    until(lambda: source.reads >= 3)
    assert source.interrupted.is_set()
    poller.stop(PATIENCE_SECONDS)
    told = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in told] == [
        "source outbox is up",
        "source outbox is down (stalled)",
        "source outbox is down (database)",
    ]


def test_a_first_read_that_hangs_does_not_hold_up_the_other_source(monkeypatch):
    monkeypatch.setattr(pollers, "STALLED_AFTER_SECONDS", 0.0)
    tally = Tally()
    tally.accept("handoff", Reading())
    source = Hanging()
    source.interrupt = lambda: None
    poller = Poller(source, tally, 5)
    poller.start()
    until(lambda: source.reads == 1)
    assert not tally.was_read()
    poller.watch()
    assert tally.was_read()
    assert HITS not in tally.view().values, "unknown is not zero"
    source.free.set()
    poller.stop(PATIENCE_SECONDS)


def test_a_loop_that_nothing_can_cut_off_ends_its_liveness(monkeypatch):
    monkeypatch.setattr(pollers, "STUCK_AFTER_SECONDS", 0.2)
    source = Hanging()
    source.interrupt = lambda: None
    poller = Poller(source, Tally(["outbox"]), 0.01)
    poller.start()
    assert poller.progresses()
    until(lambda: not poller.progresses())
    source.free.set()
    until(poller.progresses)
    poller.stop(PATIENCE_SECONDS)


def test_a_long_pause_is_not_taken_for_a_stop(monkeypatch):
    monkeypatch.setattr(pollers, "STUCK_AFTER_SECONDS", 0.05)
    poller = Poller(Failing("no_tables"), Tally(["outbox"]), 5)
    poller.start()
    until(lambda: poller.has_read_since(0.1))
    time.sleep(0.1)  # longer than a loop may be late here
    assert poller.progresses()
    poller.stop(PATIENCE_SECONDS)


def test_hurry_begins_the_next_read_at_once():
    source = Hanging()
    source.free.set()
    poller = Poller(source, Tally(["outbox"]), 600)
    poller.start()
    until(lambda: poller.has_read_since(0.1))
    moment = time.monotonic()
    assert not poller.has_read_since(moment)
    poller.hurry()
    until(lambda: poller.has_read_since(moment))
    poller.stop(PATIENCE_SECONDS)


def test_a_log_that_blocks_does_not_hold_up_a_scrape():
    tally = Tally(["outbox"])
    blocked, free = threading.Event(), threading.Event()

    class Full(logging.Handler):
        """A log whose reader has gone to sleep."""

        def emit(self, record):
            blocked.set()
            free.wait(PATIENCE_SECONDS)

    handler = Full()
    logging.getLogger("steadfast_sidecar.tally").addHandler(handler)
    writer = threading.Thread(target=tally.reject, args=("outbox", Reason("database", "gone")))
    try:
        writer.start()
        assert blocked.wait(PATIENCE_SECONDS)
        seen = []
        reader = threading.Thread(target=lambda: seen.append(tally.view().values[UP]))
        reader.start()
        reader.join(PATIENCE_SECONDS / 3)
        assert seen == [0]
    finally:
        free.set()
        writer.join()
        logging.getLogger("steadfast_sidecar.tally").removeHandler(handler)
