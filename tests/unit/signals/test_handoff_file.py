# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import random
import signal
import stat
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from airflow_steadfast.signals import Totals, handoff
from airflow_steadfast.signals.handoff import HandoffError, HistogramTotals, Snapshot, series_key

DECIDED = "steadfast_launches_decided_total"

names = some.text("abc_", min_size=1, max_size=8)
keys = some.builds(series_key, names, some.dictionaries(names, some.text(max_size=5), max_size=2))
numbers = some.floats(0, 1e12, allow_nan=False)
snapshots = some.builds(
    Snapshot,
    written_at=numbers,
    process=some.dictionaries(names, some.one_of(some.integers(), some.text(max_size=5)), max_size=3),
    counters=some.dictionaries(keys, numbers, max_size=4),
    gauges=some.dictionaries(keys, numbers, max_size=4),
    histograms=some.dictionaries(
        keys,
        some.builds(HistogramTotals, some.just((0.1, 1.0)), some.just([1.0, 2.0]), numbers, numbers),
        max_size=2,
    ),
)
json_values = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(max_size=4),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(snapshots)
def test_what_is_written_is_read_back(snapshot):
    assert handoff.decode(handoff.encode(snapshot)) == snapshot


@given(some.binary())
def test_any_bytes_give_a_snapshot_or_one_kind_of_error(data):
    with pytest.raises(HandoffError):
        handoff.decode(data)


@given(
    some.dictionaries(
        some.sampled_from(["written_at", "process", "counters", "gauges", "histograms"]), json_values
    )
)
def test_any_document_gives_a_snapshot_or_one_kind_of_error(document):
    data = json.dumps({"version": 1, **document}).encode()
    try:
        handoff.decode(data)
    except HandoffError:
        return
    assert len(document) == 5


def test_the_file_is_for_every_reader_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        handoff.write(tmp_path / "scheduler.json", Snapshot())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "scheduler.json").stat().st_mode) == 0o644


def test_a_file_of_the_wrong_size_is_not_read(tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_bytes(b" " * (handoff.MAX_BYTES + 1))
    with pytest.raises(HandoffError, match="larger"):
        handoff.read(path)


def write_until_killed(folder, acknowledge):
    """As a scheduler does; each number is told when it is in the file."""
    totals = Totals()
    totals.configure(folder)
    while True:
        totals.increment(DECIDED)
        totals.flush()
        os.write(acknowledge, f"{int(totals.value(DECIDED))}\n".encode())


def forked_writer(folder):
    """Return the pid of a process that writes, and a stream of what it has acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write_until_killed(folder, writing)
        finally:
            os._exit(1)
    os.close(writing)
    return pid, os.fdopen(reading)


def test_a_hundred_kills_lose_and_double_no_count(tmp_path):
    """What the writer has acknowledged is in the file; at most the one write in flight is there as well."""
    dice = random.Random(3)  # noqa: S311 - a repeatable dice
    acknowledged = 0
    for _ in range(100):
        writer, stream = forked_writer(tmp_path)
        with stream:
            first = int(stream.readline())
            assert first in {acknowledged + 1, acknowledged + 2}
            time.sleep(dice.random() * 0.02)
            os.kill(writer, signal.SIGKILL)
            lines = [str(first), *stream.read().splitlines()]
        assert os.WIFSIGNALED(os.waitpid(writer, 0)[1])
        # The last line may be cut by the kill: a shorter number is below its predecessor.
        acknowledged = max(int(line) for line in lines)
        value = handoff.read(tmp_path / "scheduler.json").counters[DECIDED, ()]
        assert value in {acknowledged, acknowledged + 1}
    assert acknowledged > 100


UNWRITABLE = f"""
import logging, os, resource, sys
folder, how = sys.argv[1:]
logging.basicConfig(stream=sys.stdout, format="%(levelname)s", level=logging.INFO)
from airflow_steadfast import signals

if how == "full":
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
elif os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
signals.configure_handoff(folder)
for _ in range(4):
    signals.totals().increment({DECIDED!r})
    signals.totals().flush()
assert signals.totals().value({DECIDED!r}) == 14
if how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
else:
    os.seteuid(os.getuid())
    os.chmod(folder, 0o755)
signals.totals().flush()
"""


@pytest.mark.parametrize("how", ["read-only", "full"])
def test_a_folder_that_cannot_be_written_keeps_the_totals_in_memory(tmp_path, how):
    folder = tmp_path / "handoff"
    folder.mkdir()
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    handoff.write(folder / "scheduler.json", Snapshot(counters={(DECIDED, ()): 10.0}))
    if how == "read-only":
        folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", UNWRITABLE, str(folder), how], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["WARNING", "INFO"], "one line when it fails, one when it works again"
    counters = handoff.read(folder / "scheduler.json").counters
    assert counters[DECIDED, ()] == 14
    assert counters["steadfast_handoff_write_errors_total", ()] == 5
    left = {path.name for path in folder.iterdir()} - {".scheduler.json.lock"}
    assert left == {"scheduler.json"}, "no half-written file is left"
