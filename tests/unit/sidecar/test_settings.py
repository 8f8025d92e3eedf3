# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import sqlite3

import pytest

from airflow_steadfast.signals import Totals
from steadfast_sidecar import settings
from steadfast_sidecar.cli import main
from steadfast_sidecar.settings import AIRFLOW_URL_VARIABLE, Address, SettingsError

SECRET = "postgresql://airflow:hunter2@db/airflow"


def test_a_flag_wins_over_the_variable_which_wins_over_the_default():
    assert settings.load({}, {}).poll_interval == 5
    environ = {"STEADFAST_POLL_INTERVAL": "7"}
    assert settings.load({}, environ).poll_interval == 7
    assert settings.load({"poll_interval": "9"}, environ).poll_interval == 9


def test_an_empty_variable_is_none():
    assert settings.load({}, {"STEADFAST_POLL_INTERVAL": ""}).poll_interval == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[::]:9109", Address("", 9109)),
        (":9109", Address("", 9109)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),  # noqa: S104 - the form under test
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:9109", Address("::1", 9109)),
    ],
)
def test_forms_of_the_address(text, expected):
    assert settings.load({"listen": text}, {}).listen == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listen", "9109"),
        ("listen", "host:port"),
        ("listen", "host:70000"),
        ("listen", "http://host:1"),
        ("poll_interval", "0"),
        ("poll_interval", "soon"),
        ("poll_interval", "nan"),
        ("handoff_dir", "relative"),
        ("handoff_max_age", "1"),
        ("consumer", "x" * 254),
        ("log_format", "xml"),
        ("shutdown_linger", "-1"),
        ("database_url_file", "/nonexistent/url"),
    ],
)
def test_a_wrong_value_names_its_key(key, value):
    with pytest.raises(SettingsError, match="--" + key.replace("_", "-")):
        settings.load({key: value}, {})


def test_a_wrong_variable_is_named_as_a_variable():
    with pytest.raises(SettingsError, match=r"^STEADFAST_LISTEN: 'x' is wrong: not of the form"):
        settings.load({}, {"STEADFAST_LISTEN": "x"})


def test_where_the_database_url_comes_from(tmp_path):
    (tmp_path / "url").write_text("sqlite:///from-file\n")
    environ = {AIRFLOW_URL_VARIABLE: "sqlite:///airflow"}
    assert settings.load({}, {}).database_url == ""
    assert settings.load({}, environ).database_url == "sqlite:///airflow"
    environ["STEADFAST_DATABASE_URL_FILE"] = str(tmp_path / "url")
    assert settings.load({}, environ).database_url == "sqlite:///from-file"
    environ["STEADFAST_DATABASE_URL"] = "sqlite:///own"
    assert settings.load({}, environ).database_url == "sqlite:///own"


def test_the_printed_settings_hide_the_secret(capsys, monkeypatch):
    monkeypatch.setenv("STEADFAST_DATABASE_URL", SECRET)
    assert main(["--print-config"]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert "database_url = (set, hidden)" in shown
    assert "listen = [::]:9109" in shown


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ("tls_cert_file", "tls_key_file"),
        ("tls_key_file", "tls_cert_file"),
        ("tls_client_ca_file", "tls_cert_file"),
    ],
)
def test_half_a_tls_setting_names_the_other_half(given, needed):
    flag, other = (f"--{name.replace('_', '-')}" for name in (given, needed))
    with pytest.raises(SettingsError, match=f"^{other}: not set, but {flag} needs it"):
        settings.load({given: "/some/file"}, {})


def test_the_printed_settings_name_the_files_and_read_none_of_them(capsys):
    files = ["--bearer-token-file", "/nonexistent/token", "--tls-cert-file", "/c", "--tls-key-file", "/k"]
    assert main(["--print-config", *files]) == 0
    assert "bearer_token_file = /nonexistent/token\n" in capsys.readouterr().out


def test_a_check_of_sound_sources_passes(tmp_path, capsys):
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        database.execute(
            "CREATE TABLE task_state_store (id INTEGER PRIMARY KEY, dag_run_id, task_id, map_index, key)"
        )
    Totals().configure(tmp_path)
    arguments = ["--handoff-dir", str(tmp_path), "--database-url", f"sqlite:///{tmp_path}/airflow.db"]
    assert main(["--check", *arguments]) == 0
    assert capsys.readouterr().out == "access: ok (plain HTTP)\nhandoff: ok\noutbox: ok\n"


def test_a_check_passes_before_the_scheduler_and_below_3_3_and_says_so(tmp_path, capsys):
    arguments = ["--handoff-dir", str(tmp_path), "--database-url", f"sqlite:///{tmp_path}/airflow.db"]
    assert main(["--check", *arguments]) == 0
    said = capsys.readouterr().out
    assert "handoff: not_yet: " in said
    assert "outbox: no_state_store: " in said


def test_a_check_tells_of_every_source_that_fails(tmp_path, capsys):
    (tmp_path / "scheduler.json").write_text("{}")
    assert main(["--check", "--handoff-dir", str(tmp_path), "--database-url", "mysql://u@h/d"]) == 1
    said = capsys.readouterr().out
    assert "handoff: malformed: " in said
    assert "outbox: unsupported_database: " in said


def test_a_wrong_setting_ends_the_command_with_status_2(capsys):
    assert main(["--listen", "nowhere"]) == 2
    assert "--listen" in capsys.readouterr().err


def test_a_busy_port_is_told_by_its_key(capsys):
    import socket

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        assert main(["--listen", f"127.0.0.1:{busy.getsockname()[1]}"]) == 2
    assert "--listen" in capsys.readouterr().err


def test_init_db_without_a_database_says_what_to_set(capsys, monkeypatch):
    monkeypatch.delenv(AIRFLOW_URL_VARIABLE, raising=False)
    assert main(["init-db"]) == 2
    assert "STEADFAST_DATABASE_URL" in capsys.readouterr().err


def test_init_db_and_check_on_a_database_that_is_not_there_hide_the_password(capsys):
    url = SECRET.replace("@db/", "@127.0.0.1:1/")
    assert main(["init-db", "--database-url", url]) == 1
    assert main(["--check", "--database-url", url]) == 1
    output = capsys.readouterr()
    assert "hunter2" not in output.out + output.err
    assert "outbox: database: OperationalError" in output.out
