# SPDX-License-Identifier: Apache-2.0
"""The outbox on the schema that Airflow makes, filled by Airflow's own backend."""

from __future__ import annotations

import json

import pytest

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar.sources import OutboxSource, SourceError
from tests.on_airflow.outbox.conftest import run_airflow
from tests.support import requires

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
needs_store = requires.state_store("test_before_3_3.py")

WRITE_WITH_AIRFLOW = """
import json, sys
from airflow._shared.state import TaskScope
from airflow._shared.timezones import timezone
from airflow.state import get_state_backend
from airflow_steadfast.signals import outbox

backend = get_state_backend()
for map_index, key in json.loads(sys.argv[1]):
    scope = TaskScope(dag_id="d", run_id="r", task_id="t", map_index=map_index)
    expires = timezone.utcnow() + outbox.RETENTION
    backend.set(scope, key, json.dumps(dict(outbox.VALUE)), expires_at=expires)
"""


def hits(reading):
    return reading.values.get(series_key("steadfast_reattach_identity_hits_total", {}), 0)


def fallbacks(reading, reason):
    return reading.values.get(series_key("steadfast_reattach_label_fallbacks_total", {"reason": reason}), 0)


@needs_store
def test_counts_what_airflows_own_backend_wrote(airflow_database, tmp_path):
    events = [
        (-1, outbox.event_key("attempt", 2)),
        (-1, outbox.event_key("identity_hit", 2)),
        (0, outbox.event_key("identity_hit", 2)),
        (1, outbox.event_key("label_fallback", 3, "no_record")),
        (1, outbox.event_key("label_fallback", 3, "no_record")),
        (-1, "pod_identifier"),
    ]
    run_airflow(airflow_database.url, tmp_path, "-c", WRITE_WITH_AIRFLOW, json.dumps(events))
    source = OutboxSource(airflow_database.url, "a")
    reading = source.read()
    source.close()
    assert hits(reading) == 2
    assert fallbacks(reading, "no_record") == 1
    assert reading.values[series_key("steadfast_reattach_attempts_total", {})] == 1
    assert reading.pending == 0
    assert airflow_database.sql("SELECT count(*) FROM steadfast.outbox_claims") == "4"
    assert airflow_database.sql("SELECT count(*) FROM task_state_store") == "5", (
        "Airflow's rows stay as they are"
    )


@needs_store
def test_the_table_has_what_the_outbox_relies_on(airflow_database):
    unique = airflow_database.sql(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'task_state_store_uq'"
    )
    assert unique == "UNIQUE (dag_run_id, task_id, map_index, key)"
    key_width = airflow_database.sql(
        "SELECT character_maximum_length FROM information_schema.columns "
        "WHERE table_name = 'task_state_store' AND column_name = 'key'"
    )
    longest = max(len(outbox.event_key(kind, 10**9, "store_unavailable")) for kind in outbox.METRIC_BY_KIND)
    assert longest <= int(key_width)


@needs_store
def test_each_consumer_serves_its_own_sums(airflow_database):
    first, second = OutboxSource(airflow_database.url, "a"), OutboxSource(airflow_database.url, "b")
    airflow_database.write(outbox.event_key("identity_hit", 2))
    assert hits(first.read()) == 1
    airflow_database.write(outbox.event_key("identity_hit", 3))
    assert hits(second.read()) == 1
    airflow_database.write(outbox.event_key("identity_hit", 2), outbox.event_key("identity_hit", 3))
    assert hits(first.read()) + hits(second.read()) == 2, "written again is not counted again"
    first.close()
    second.close()


@needs_store
def test_a_key_of_a_later_format_is_left_and_a_damaged_one_is_noted_once(airflow_database):
    airflow_database.write("steadfast.event.v2.1.new", "steadfast.event.v1.x.identity_hit")
    source = OutboxSource(airflow_database.url, "a")
    assert source.read().misunderstood == 1
    assert source.read().misunderstood == 0
    assert airflow_database.sql("SELECT string_agg(key, ' ') FROM steadfast.outbox_claims") == (
        "steadfast.event.v1.x.identity_hit"
    )
    source.close()


@needs_store
def test_a_database_that_airflow_has_not_migrated_yet_is_tried_again(airflow_database):
    airflow_database.sql("ALTER TABLE task_state_store RENAME TO not_yet")
    source = OutboxSource(airflow_database.url, "a")
    with pytest.raises(SourceError, match=r"older than 3\.3 or not migrated yet") as caught:
        source.read()
    assert caught.value.reason.code == "no_state_store"
    assert airflow_database.sql("SELECT version_num FROM alembic_version") in caught.value.reason.text
    airflow_database.sql("ALTER TABLE not_yet RENAME TO task_state_store")
    assert source.read().pending == 0
    source.close()


def test_a_database_without_any_table_is_a_reason_too(server):
    server.create_database("nothing")
    with pytest.raises(SourceError, match=r"at migration none"):
        OutboxSource(server.url("nothing"), "a").read()


@needs_store
def test_a_table_of_another_shape_is_a_reason_not_a_crash(airflow_database):
    airflow_database.sql("ALTER TABLE task_state_store RENAME COLUMN map_index TO position")
    with pytest.raises(SourceError, match=r"lacks map_index") as caught:
        OutboxSource(airflow_database.url, "a").read()
    assert caught.value.reason.code == "state_store_changed"


@needs_store
def test_tables_dropped_under_a_running_sidecar_come_back(airflow_database):
    airflow_database.write(outbox.event_key("identity_hit", 2))
    source = OutboxSource(airflow_database.url, "a")
    assert hits(source.read()) == 1
    airflow_database.sql("DROP SCHEMA steadfast CASCADE")
    with pytest.raises(SourceError):
        source.read()
    assert hits(source.read()) == 1
    source.close()


@needs_store
def test_what_is_old_is_forgotten_and_what_lives_is_kept(airflow_database, monkeypatch):
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.SWEEP_SECONDS", 0.0)
    kept, gone = outbox.event_key("identity_hit", 2), outbox.event_key("identity_hit", 3)
    airflow_database.write(kept, gone)
    source, departed = OutboxSource(airflow_database.url, "a"), OutboxSource(airflow_database.url, "departed")
    assert hits(source.read()) == 2
    airflow_database.write(outbox.event_key("harvested", 2))
    departed.read()
    departed.close()
    airflow_database.sql("DELETE FROM task_state_store WHERE key LIKE '%.3.%'")
    airflow_database.sql("UPDATE steadfast.outbox_claims SET claimed_at = now() - interval '31 days'")
    airflow_database.sql("UPDATE steadfast.outbox_tallies SET updated_at = now() - interval '31 days'")
    assert hits(source.read()) == 2
    claims = airflow_database.sql("SELECT string_agg(key, ' ' ORDER BY key) FROM steadfast.outbox_claims")
    assert claims == f"{outbox.event_key('harvested', 2)} {kept}"
    assert airflow_database.sql("SELECT DISTINCT consumer FROM steadfast.outbox_tallies") == "a"
    source.close()
