# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: the last counts are scraped, and nobody waits longer than told. Real processes."""

from __future__ import annotations

import signal
import subprocess
import threading
import time

import pytest

from airflow_steadfast.signals import Totals
from tests.support.sidecar_process import PATIENCE_SECONDS, sidecar_process

DECIDED = "steadfast_launches_decided_total"
LONG = "600"


def flags(folder, *, linger, interval="0.2"):
    return ["--handoff-dir", str(folder), "--poll-interval", interval, "--shutdown-linger", linger]


def ends(sidecar):
    try:
        return sidecar.process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"still there:\n{sidecar.log}")


def test_it_waits_for_the_scrape_that_takes_the_last_counts(tmp_path):
    scheduler = Totals()
    scheduler.configure(tmp_path)
    # The next read on the timer is far away: only the end itself can bring the last counts.
    with sidecar_process(*flags(tmp_path, linger=LONG, interval="300")) as sidecar:
        assert sidecar.value(DECIDED) == 0
        scheduler.increment(DECIDED, 3)
        scheduler.flush(force=True)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.await_status(503, "/readyz")
        assert sidecar.get("/livez")[0] == 200
        with pytest.raises(subprocess.TimeoutExpired):
            sidecar.process.wait(0.3)
        assert sidecar.value(DECIDED) == 3
        assert ends(sidecar) == 0
        assert "stopped: the last counts were scraped" in sidecar.log


def test_increments_are_not_lost_over_restarts_under_steady_scrapes(tmp_path):
    scheduler = Totals()
    scheduler.configure(tmp_path)
    for turn in range(1, 4):
        with sidecar_process(*flags(tmp_path, linger=LONG)) as sidecar:
            seen = [sidecar.value(DECIDED)]
            scheduler.increment(DECIDED)
            scheduler.flush(force=True)
            sidecar.process.send_signal(signal.SIGTERM)
            while sidecar.process.poll() is None:
                try:
                    seen.append(sidecar.value(DECIDED))
                except OSError:
                    break
                time.sleep(0.1)
            assert ends(sidecar) == 0
            assert seen == sorted(seen)
            assert seen[-1] == turn


def test_the_wait_is_bounded(tmp_path):
    with sidecar_process(*flags(tmp_path, linger="0.5")) as sidecar:
        sidecar.metrics()
        assert sidecar.terminate() == 0
        assert "stopped: no scrape within 0.5 s" in sidecar.log


def test_no_wait_where_nobody_scrapes(tmp_path):
    soon = {"linger._ON_ITS_WAY": 0.1}
    with sidecar_process(*flags(tmp_path, linger=LONG), constants=soon) as sidecar:
        assert sidecar.terminate() == 0
        assert "stopped: nobody scrapes" in sidecar.log


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_wait(tmp_path, second):
    with sidecar_process(*flags(tmp_path, linger=LONG)) as sidecar:
        sidecar.metrics()
        sidecar.process.send_signal(signal.SIGINT)
        sidecar.await_status(503, "/readyz")
        sidecar.process.send_signal(second)
        assert ends(sidecar) == 0
        assert "stopped: told a second time" in sidecar.log


def test_a_connection_that_hangs_does_not_hold_up_the_end(tmp_path):
    import socket

    with (
        sidecar_process(*flags(tmp_path, linger="0")) as sidecar,
        socket.create_connection(("127.0.0.1", sidecar.port)),
    ):
        done = threading.Event()
        threading.Thread(target=lambda: (sidecar.terminate(), done.set()), daemon=True).start()
        assert done.wait(PATIENCE_SECONDS)
