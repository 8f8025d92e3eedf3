# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from airflow_steadfast.signals import Totals, handoff
from airflow_steadfast.signals.handoff import Snapshot, series_key
from steadfast_sidecar.sources import HandoffSource, OutboxSource, SourceError, outbox_bypass, shown

DECIDED = "steadfast_launches_decided_total"
DROPPED = "steadfast_workloads_dropped_total"
MAX_AGE = 60


def source(folder):
    return HandoffSource(folder, MAX_AGE)


def reason_of(folder):
    with pytest.raises(SourceError) as caught:
        source(folder).read()
    return caught.value.reason


def test_reads_what_the_scheduler_wrote(tmp_path):
    totals = Totals()
    totals.increment(DECIDED, 3)
    totals.observe("steadfast_launch_check_duration_seconds", 0.2)
    totals.configure(tmp_path)
    reading = source(tmp_path).read()
    assert reading.values[series_key(DECIDED, {})] == 3
    assert reading.histograms[series_key("steadfast_launch_check_duration_seconds", {})].count == 1
    assert reading.process["pid"] == os.getpid()
    assert reading.degraded is None
    assert reading.misunderstood == 0


def test_a_missing_file_or_folder_says_which(tmp_path):
    assert reason_of(tmp_path).code == "not_yet"
    assert "has not started" in reason_of(tmp_path).text
    assert reason_of(tmp_path / "absent").code == "missing"
    assert "mount" in reason_of(tmp_path / "absent").text


def test_a_file_that_was_there_and_is_gone_is_missing(tmp_path):
    handoff.write(tmp_path / "scheduler.json", Snapshot(counters={(DECIDED, ()): 7.0}))
    reader = source(tmp_path)
    reader.read()
    (tmp_path / "scheduler.json").unlink()
    with pytest.raises(SourceError) as caught:
        reader.read()
    assert caught.value.reason.code == "missing"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 9}', b"\xff"])
def test_a_malformed_file_is_a_reason(tmp_path, content):
    (tmp_path / "scheduler.json").write_bytes(content)
    assert reason_of(tmp_path).code == "malformed"


def test_something_that_is_no_file_is_unreadable(tmp_path):
    (tmp_path / "scheduler.json").mkdir()
    assert reason_of(tmp_path).code == "unreadable"


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "scheduler.json")
    assert reason_of(tmp_path).code == "unreadable"
    assert "no regular file" in reason_of(tmp_path).text


def test_a_file_that_nobody_writes_any_more_is_stale_but_counts(tmp_path):
    handoff.write(tmp_path / "scheduler.json", Snapshot(counters={(DECIDED, ()): 7.0}))
    os.utime(tmp_path / "scheduler.json", (1, 1))
    reading = source(tmp_path).read()
    assert reading.values[DECIDED, ()] == 7
    assert reading.degraded.code == "stale"


def test_what_a_newer_writer_adds_is_noted_once(tmp_path, caplog):
    newer = Snapshot(
        counters={
            ("steadfast_new_total", ()): 1.0,
            ("steadfast_source_up", (("source", "handoff"),)): 1.0,
            series_key(DROPPED, {"reason": "brand_new"}): 2.0,
            series_key(DROPPED, {"reason": "other"}): 3.0,
        }
    )
    handoff.write(tmp_path / "scheduler.json", newer)
    reader = source(tmp_path)
    first, second = reader.read(), reader.read()
    assert first.values == second.values == {series_key(DROPPED, {"reason": "other"}): 5.0}
    assert (first.misunderstood, second.misunderstood) == (3, 0)
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "no_database"),
        ("not a url", "bad_url"),
        ("postgresql://u:hunter2@h:port/d", "bad_url"),
        ("mysql://u:hunter2@h/d", "unsupported_database"),
        ("postgresql://u:hunter2@127.0.0.1:1/d", "database"),
        ("sqlite:////nonexistent/folder/airflow.db", "database"),
    ],
)
def test_a_database_that_cannot_be_used_is_a_reason_without_a_password(url, code):
    with pytest.raises(SourceError) as caught:
        OutboxSource(url, "a").read()
    assert caught.value.reason.code == code
    assert "hunter2" not in caught.value.reason.text
    assert "hunter2" not in shown(url)


@pytest.mark.parametrize(
    ("variable", "content", "told"),
    [
        ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD", "", r"sql_alchemy_conn_cmd .* by a command"),
        (
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_SECRET",
            "",
            r"sql_alchemy_conn_secret .* by a secrets backend",
        ),
        ("", "[database]\nsql_alchemy_conn_cmd = cat /hunter2\n", r"sql_alchemy_conn_cmd .* by a command"),
        ("", "", "^no database URL"),
    ],
)
def test_a_url_that_only_airflow_can_get_is_named(variable, content, told, tmp_path, monkeypatch):
    (tmp_path / "airflow.cfg").write_text(content)
    monkeypatch.setenv("AIRFLOW_CONFIG", str(tmp_path / "airflow.cfg"))
    for name in ("", "_CMD", "_SECRET"):
        monkeypatch.delenv(f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN{name}", raising=False)
    if variable:
        monkeypatch.setenv(variable, "cat /hunter2")
    with pytest.raises(SourceError, match=told) as caught:
        OutboxSource("", "a").read()
    assert caught.value.reason.code == "no_database"
    assert "STEADFAST_DATABASE_URL_FILE" in caught.value.reason.text
    assert "hunter2" not in caught.value.reason.text


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({}, None),
        ({"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "False"}, None),
        ({"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "true"}, "clear_on_success"),
        ({"AIRFLOW__STATE_STORE__BACKEND": "airflow.state.metastore.MetastoreBackend"}, None),
        ({"AIRFLOW__STATE_STORE__BACKEND": "mine.Backend"}, "custom_backend"),
        ({"AIRFLOW__WORKERS__STATE_STORE_BACKEND": "mine.Backend"}, None),
    ],
)
def test_settings_of_airflow_that_lose_events(environ, code, tmp_path):
    reason = outbox_bypass({"AIRFLOW_HOME": str(tmp_path), **environ})
    assert (reason.code if reason else None) == code


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("[state_store]\nclear_on_success = True\n", "clear_on_success"),
        ("[state_store]\nbackend = mine.Backend\n", "custom_backend"),
        ("[core]\nfernet_key = %x%\n", None),
        ("not an ini file", None),
    ],
)
def test_airflow_cfg_is_read_as_well_but_the_environment_wins(content, code, tmp_path):
    path = tmp_path / "airflow.cfg"
    path.write_text(content)
    for environ in ({"AIRFLOW_HOME": str(tmp_path)}, {"AIRFLOW_CONFIG": str(path)}):
        reason = outbox_bypass(environ)
        assert (reason.code if reason else None) == code
    override = {"AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "False", "AIRFLOW__STATE_STORE__BACKEND": ""}
    assert outbox_bypass({"AIRFLOW_HOME": str(tmp_path), **override}) is None
