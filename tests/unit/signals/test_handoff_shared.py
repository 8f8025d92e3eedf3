# SPDX-License-Identifier: Apache-2.0
"""Several processes of one pod that count into one hand-off file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from airflow_steadfast.signals import Totals, handoff, handoff_turn, process_totals

DECIDED = "steadfast_launches_decided_total"
DURATION = "steadfast_launch_check_duration_seconds"
WRITE_ERRORS = "steadfast_handoff_write_errors_total"


def stored(folder, name=DECIDED):
    return handoff.read(folder / "scheduler.json").counters[name, ()]


def stored_durations(folder):
    return handoff.read(folder / "scheduler.json").histograms[DURATION, ()]


@given(
    steps=some.lists(
        some.tuples(some.integers(0, 2), some.sampled_from(["count", "write", "restart"])), max_size=25
    )
)
def test_in_any_order_the_file_has_what_all_have_written_and_never_falls(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("handoff")

    def started():
        totals = Totals()
        totals.configure(folder)
        return totals

    processes = [started() for _ in range(3)]
    unwritten = [0, 0, 0]
    written = 0
    for who, step in steps:
        if step == "count":
            processes[who].increment(DECIDED)
            processes[who].observe(DURATION, 0.25)
            unwritten[who] += 1
        elif step == "write":
            processes[who].flush(force=True)
            written, unwritten[who] = written + unwritten[who], 0
        else:
            processes[who], unwritten[who] = started(), 0
        assert stored(folder) == written
        assert stored_durations(folder).count == written
        assert stored_durations(folder).sum == written / 4
        assert stored_durations(folder).counts[-1] == written


WRITER = f"""
import sys
from airflow_steadfast import signals
signals.configure_handoff(sys.argv[1])
for _ in range(int(sys.argv[2])):
    signals.totals().increment({DECIDED!r})
    signals.totals().flush()
signals.totals().flush(force=True)
"""


def writers(folder, *counts):
    return [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(count)]) for count in counts]


def test_processes_that_write_at_once_lose_and_double_no_count(tmp_path):
    for running in writers(tmp_path, 400, 500, 600):
        assert running.wait(60) == 0
    assert stored(tmp_path) == 1500
    assert stored(tmp_path, WRITE_ERRORS) == 0, "to wait for one's turn is no failure"


def test_a_process_that_is_killed_among_others_takes_no_count_of_theirs(tmp_path):
    steady, victim = writers(tmp_path, 1500, 10**9)
    for _ in range(8):
        time.sleep(0.05)  # it dies at another point of its writing each time
        victim.kill()
        victim.wait()
        (victim,) = writers(tmp_path, 10**9)
    assert steady.wait(60) == 0
    victim.kill()
    victim.wait()
    before = stored(tmp_path)
    assert before >= 1500
    totals = Totals()
    totals.configure(tmp_path)
    assert stored(tmp_path) == before


HOLDER = """
import pathlib, sys, time
from airflow_steadfast.signals import handoff_turn
with handoff_turn.turn(pathlib.Path(sys.argv[1]) / "scheduler.json", 10):
    print("held", flush=True)
    time.sleep(600)  # holds its turn until it is killed
"""


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


def test_a_process_that_keeps_its_turn_costs_milliseconds_and_no_count(tmp_path, holder, monkeypatch, caplog):
    totals = Totals()
    totals.configure(tmp_path)
    totals.increment(DECIDED)
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGSTOP)
    took = []
    for _ in range(5):
        began = time.monotonic()
        totals.flush()
        took.append(time.monotonic() - began)
    assert process_totals.PATIENCE_SECONDS <= min(took) < 0.005
    assert stored(tmp_path) == 0
    assert caplog.records == [], "not at once"
    monkeypatch.setattr(process_totals, "BUSY_SECONDS", 0)
    totals.flush()
    totals.flush()
    assert len(caplog.records) == 1
    assert "another process holds the turn" in caplog.text
    holder.kill()
    holder.wait()
    totals.flush()
    assert stored(tmp_path) == 1
    assert stored(tmp_path, WRITE_ERRORS) == 2


def test_a_child_that_is_forked_in_a_turn_does_not_keep_it(tmp_path):
    path = tmp_path / "scheduler.json"
    with handoff_turn.turn(path, 0):
        child = os.fork()
        if child == 0:
            time.sleep(600)  # lives until it is killed
            os._exit(0)
    try:
        program = HOLDER.replace("time.sleep(600)", "").replace(", 10)", ", 0)")
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_child_that_starts_the_executor_too_counts_its_own_alone(tmp_path):
    totals = Totals()
    totals.configure(tmp_path)
    totals.increment(DECIDED, 10)
    totals.observe(DURATION, 0.1)
    totals.flush()
    totals.increment(DECIDED, 5)  # the parent will write these
    totals.observe(DURATION, 0.1)
    child = os.fork()
    if child == 0:
        totals.increment(DECIDED, 100)
        totals.configure(tmp_path)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert stored(tmp_path) == 110
    totals.flush()
    assert stored(tmp_path) == 115
    assert stored_durations(tmp_path).count == 2


def test_a_write_that_was_cut_short_is_seen_by_the_others(tmp_path, monkeypatch):
    """The number is raised before the file changes: else a kill in between would lose counts."""
    first, second = Totals(), Totals()
    first.configure(tmp_path)
    second.configure(tmp_path)
    first.increment(DECIDED)

    def die(self):
        raise SystemExit

    monkeypatch.setattr(Totals, "_snapshot", die)
    with pytest.raises(SystemExit):
        first.flush()
    monkeypatch.undo()
    real = handoff.write

    def die_after(path, snapshot):
        real(path, snapshot)
        raise SystemExit

    monkeypatch.setattr(handoff, "write", die_after)
    with pytest.raises(SystemExit):
        first.flush()
    monkeypatch.undo()
    second.increment(DECIDED)
    second.flush()
    assert stored(tmp_path) == 2
    first.flush()
    assert stored(tmp_path) == 2
