# SPDX-License-Identifier: Apache-2.0
"""The sidecar beside an Airflow that has no task state store: it says so, and everything else works."""

from __future__ import annotations

import pytest

from airflow_steadfast import signals
from airflow_steadfast.signals import catalogue
from steadfast_sidecar.sources import OutboxSource, SourceError
from tests.support import requires
from tests.support.sidecar_process import sidecar_process

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.postgres,
    requires.no_state_store("the rest of this folder"),
]


def test_the_reason_names_the_version_and_the_database_stays_as_it_was(airflow_database):
    source = OutboxSource(airflow_database.url, "a")
    with pytest.raises(SourceError, match=r"older than 3\.3") as caught:
        source.read()
    assert caught.value.reason.code == "no_state_store"
    assert airflow_database.sql("SELECT version_num FROM alembic_version") in caught.value.reason.text
    assert airflow_database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'steadfast'") == "0"


def test_the_schedulers_numbers_are_served_all_the_same(airflow_database, tmp_path):
    scheduler = signals.Totals()
    scheduler.configure(tmp_path)
    scheduler.increment("steadfast_workloads_dropped_total", 3, reason="state_changed")
    scheduler.flush(force=True)
    flags = ["--database-url", airflow_database.url, "--poll-interval", "0.2", "--handoff-dir", str(tmp_path)]
    with sidecar_process(*flags) as sidecar:
        sidecar.await_value(3, "steadfast_workloads_dropped_total", reason="state_changed")
        assert sidecar.value("steadfast_source_up", source="handoff") == 1
        assert sidecar.value("steadfast_source_up", source="outbox") == 0
        assert sidecar.get("/livez")[0] == 200
        assert sidecar.get("/readyz") == (200, "ok; down: outbox\n")
        assert sidecar.log.count("older than 3.3") == 1, "said once, not at each read"
        assert sidecar.value("steadfast_collector_errors_total", source="outbox") == 0, "down, and no error"
        served = {name for name, _ in sidecar.metrics()}
        assert {metric.name for metric in catalogue.METRICS if metric.kind == "counter"} <= served
