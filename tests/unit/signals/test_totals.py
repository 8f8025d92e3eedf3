# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as some

from airflow_steadfast import signals
from airflow_steadfast.signals import Totals, handoff
from airflow_steadfast.signals.catalogue import METRICS
from airflow_steadfast.signals.handoff import series_key

DROPPED = "steadfast_workloads_dropped_total"
DECIDED = "steadfast_launches_decided_total"
DURATION = "steadfast_launch_check_duration_seconds"
WRITE_ERRORS = "steadfast_handoff_write_errors_total"


def read(folder):
    return handoff.read(folder / "scheduler.json")


def stored(folder, name=DECIDED, **labels):
    return read(folder).counters[series_key(name, labels)]


def test_every_series_of_the_process_starts_at_zero_in_the_file(tmp_path):
    Totals().configure(tmp_path)
    snapshot = read(tmp_path)
    present = {*snapshot.counters, *snapshot.gauges, *snapshot.histograms}
    for metric in METRICS:
        if metric.source != "sidecar":
            assert {series_key(metric.name, labels) for labels in metric.series()} <= present
    assert {*snapshot.counters.values(), *snapshot.gauges.values()} == {0.0}


def test_counts_gauges_and_durations(tmp_path):
    totals = Totals()
    totals.configure(tmp_path)
    totals.increment(DROPPED, reason="state_changed")
    totals.increment(DROPPED, 2, reason="state_changed")
    totals.set_gauge("steadfast_launches_held", 4)
    totals.observe(DURATION, 0.003)
    totals.observe(DURATION, 99)
    totals.flush()
    assert totals.value(DROPPED, reason="state_changed") == 3
    assert totals.value("steadfast_launches_held") == 4
    assert totals.value(DURATION) == 2
    snapshot = read(tmp_path)
    assert snapshot.counters[series_key(DROPPED, {"reason": "state_changed"})] == 3
    histogram = snapshot.histograms[series_key(DURATION, {})]
    assert (histogram.count, histogram.sum) == (2, 99.003)
    assert dict(zip(histogram.bounds, histogram.counts, strict=True))[0.0025] == 0
    assert dict(zip(histogram.bounds, histogram.counts, strict=True))[0.005] == 1
    assert snapshot.process["pid"] == os.getpid()


@pytest.mark.parametrize(
    "call",
    [
        lambda totals: totals.increment("steadfast_nothing_total"),
        lambda totals: totals.increment("steadfast_launches_held"),
        lambda totals: totals.increment("steadfast_source_up"),
        lambda totals: totals.increment(DECIDED, -1),
        lambda totals: totals.increment(DECIDED, float("nan")),
        lambda totals: totals.increment(DECIDED, "one"),
        lambda totals: totals.increment(None),
        lambda totals: totals.increment([]),
        lambda totals: totals.set_gauge("steadfast_launches_held", float("inf")),
        lambda totals: totals.observe(DURATION, None),
        lambda totals: totals.value("nothing"),
        lambda totals: totals.configure(None),
        lambda totals: totals.configure("\0"),
    ],
)
def test_a_wrong_call_changes_nothing_and_never_raises(call):
    totals = Totals()
    call(totals)
    assert totals.value(DECIDED) == 0


@given(some.text(), some.one_of(some.none(), some.floats(), some.text()), some.text())
def test_nothing_raises_whatever_is_passed(name, amount, label):
    totals = Totals()
    for method in (totals.increment, totals.set_gauge):
        method(name, amount, reason=label)
        method(DROPPED, amount, reason=label)
    totals.observe(name, amount)
    totals.observe(DURATION, amount)
    totals.value(name, reason=label)


def test_an_unknown_label_value_is_counted_as_other_and_logged_once(caplog):
    totals = Totals()
    for _ in range(3):
        totals.increment(DROPPED, reason="brand_new")
    assert totals.value(DROPPED, reason="other") == 3
    assert len(caplog.records) == 1


def test_a_restarted_process_continues_its_counts_but_not_its_gauges(tmp_path):
    first = Totals()
    first.configure(tmp_path)
    first.increment(DECIDED, 5)
    first.observe(DURATION, 0.1)
    first.set_gauge("steadfast_patch_active", 1, component="launch_guard", mode="enforce")
    first.flush()
    second = Totals()
    second.increment(DECIDED)
    second.configure(tmp_path)
    second.configure(tmp_path)
    assert stored(tmp_path) == 6
    assert second.value(DURATION) == 1
    assert second.value("steadfast_patch_active", component="launch_guard", mode="enforce") == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 2}', b"[]", b'{"version":1,"counters":7}'])
def test_an_unusable_file_is_kept_aside_and_counting_starts_anew(tmp_path, caplog, content):
    (tmp_path / "scheduler.json").write_bytes(content)
    totals = Totals()
    totals.configure(tmp_path)
    totals.increment(DECIDED)
    totals.flush()
    assert stored(tmp_path) == 1
    assert (tmp_path / "scheduler.json.unreadable").read_bytes() == content
    assert len(caplog.records) == 1


def test_flush_writes_only_what_changed_until_the_heartbeat(tmp_path, monkeypatch):
    totals = Totals()
    totals.configure(tmp_path)
    path = tmp_path / "scheduler.json"
    written = path.stat().st_ino
    totals.flush()
    assert path.stat().st_ino == written
    monkeypatch.setattr(totals, "_last_write", -1e9)
    totals.flush()
    assert path.stat().st_ino != written


def test_a_missing_folder_costs_one_line_and_no_count(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    folder = tmp_path / "absent"
    totals = Totals()
    totals.configure(folder)
    for _ in range(5):
        totals.increment(DECIDED)
        totals.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "handoff_dir" in caplog.text
    folder.mkdir()
    totals.flush()
    assert stored(folder) == 5
    assert stored(folder, WRITE_ERRORS) == 6
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_folder_that_comes_back_with_older_totals_adds_them(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    first = Totals()
    first.configure(kept)
    first.increment(DECIDED, 10)
    first.flush()
    second = Totals()
    second.configure(tmp_path / "mount")
    second.increment(DECIDED, 3)
    second.flush()
    kept.rename(tmp_path / "mount")
    second.flush()
    assert stored(tmp_path / "mount") == 13


def test_a_forked_child_writes_nothing_and_does_not_hang_on_a_lock_held_at_the_fork(tmp_path):
    totals = Totals()
    totals.configure(tmp_path)
    held, release = threading.Event(), threading.Event()

    def hold():
        with totals._lock, totals._flush_lock:
            held.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        totals.increment(DECIDED, 1000)
        totals.flush(force=True)
        os._exit(0 if totals.value(DECIDED) == 1000 else 1)
    _, status = os.waitpid(child, 0)
    release.set()
    holder.join()
    totals.increment(DECIDED)
    totals.flush()
    assert status == 0
    assert stored(tmp_path) == 1


def test_a_write_cut_short_by_an_exit_is_made_up_at_the_next_flush(tmp_path, monkeypatch):
    totals = Totals()
    totals.configure(tmp_path)
    totals.increment(DECIDED)
    with monkeypatch.context() as patch:

        def leave(*_):
            totals.flush(force=True)
            raise SystemExit

        patch.setattr("airflow_steadfast.signals.handoff.encode", leave)
        with pytest.raises(SystemExit):
            totals.flush()
    assert stored(tmp_path) == 0
    totals.flush()
    assert stored(tmp_path) == 1


def test_threads_lose_no_count(tmp_path):
    totals = Totals()
    totals.configure(tmp_path)

    def count():
        for _ in range(500):
            totals.increment(DECIDED)
            totals.flush()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals.flush()
    assert stored(tmp_path) == 2000


def test_the_facade_gives_one_process_wide_object(tmp_path):
    assert signals.totals() is signals.totals()
    before = signals.totals().value(DECIDED)
    signals.totals().increment(DECIDED)
    assert signals.totals().value(DECIDED) == before + 1
