# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes four times a second, with certificate and token, while sidecars come and go."""

from __future__ import annotations

import pytest

from airflow_steadfast.signals import Totals
from tests.support.sidecar_process import sidecar_process

pytestmark = pytest.mark.promtool

DECIDED = "steadfast_launches_decided_total"


def test_no_increment_is_lost_over_a_rolling_restart(tmp_path, prometheus):
    files = prometheus.folder
    access = [
        *("--tls-cert-file", f"{files}/cert", "--tls-key-file", f"{files}/key"),
        *("--tls-client-ca-file", f"{files}/ca", "--bearer-token-file", f"{files}/token"),
    ]
    counted = {}
    while prometheus.held:
        instance, count = prometheus.free_target(), len(counted) + 1
        folder = tmp_path / str(count)
        folder.mkdir()
        scheduler = Totals()
        scheduler.configure(folder)
        # The timer is far away: the last counts come by the read that SIGTERM asks for.
        flags = ["--listen", instance, "--handoff-dir", str(folder), "--poll-interval", "300"]
        with sidecar_process(*flags, *access, tls=prometheus.trusting) as sidecar:
            prometheus.await_answer("up", instance, 1)
            prometheus.await_answer(DECIDED, instance, 0)
            scheduler.increment(DECIDED, count)
            scheduler.flush(force=True)
            assert sidecar.terminate() == 0
            assert "the last counts were scraped" in sidecar.log
        counted[instance] = count
    assert len(counted) > 1
    for instance, count in counted.items():
        prometheus.await_answer(f"last_over_time({DECIDED}[1h])", instance, count)
        prometheus.await_answer(
            f"max_over_time({DECIDED}[1h]) - min_over_time({DECIDED}[1h])", instance, count
        )
