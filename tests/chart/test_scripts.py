# SPDX-License-Identifier: Apache-2.0
"""The scripts that the chart mounts: what the secrets Job makes and refuses, what the probe says."""

from __future__ import annotations

import base64
import importlib.util
import json

import pytest

from tests.chart.render import CHART
from tests.support.postgres import postgres_server


def load(name):
    spec = importlib.util.spec_from_file_location(name, CHART / "files" / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


secrets_init = load("secrets_init")
heartbeat = load("heartbeat")


class Store(dict):
    """Secrets as a dict: name -> values; the same two calls as the real store."""

    def read(self, name, key):
        return self.get(name, {}).get(key)

    def create(self, name, values, annotations=None):
        if name in self:
            return False
        self[name] = dict(values)
        return True


@pytest.fixture(scope="module")
def server():
    with postgres_server() as running:
        yield running


def plan(url=None, *, allow=False, trial=False):
    made = {
        "namespace": "airflow",
        "release": "airflow",
        "keys": [
            {"name": "fernet", "key": "fernet-key", "form": "fernet", "guarded": True},
            {"name": "jwt", "key": "jwt-secret", "form": "token", "guarded": True},
            {"name": "api", "key": "api-secret-key", "form": "token", "guarded": False},
        ],
        "database": {"secret": "metadata", "key": "connection"},
        "database_wait_seconds": 0,
        "allow_new_keys": allow,
    }
    if trial:
        made["trial_database"] = {
            "secret": "postgresql",
            "key": "password",
            "user": "post gres",
            "host": "db.ns",
            "port": 5432,
            "database": "postgres",
        }
    return made


def test_a_fresh_install_gets_every_key_and_a_second_run_changes_none(server):
    store = Store(metadata={"connection": server.create_database("fresh")})
    secrets_init.ensure_keys(store, plan())
    assert len(base64.urlsafe_b64decode(store["fernet"]["fernet-key"])) == 32
    assert len(store["jwt"]["jwt-secret"]) == len(store["api"]["api-secret-key"]) == 64
    before = json.dumps(store)
    secrets_init.ensure_keys(store, plan())
    assert json.dumps(store) == before


def in_use(server, name):
    url = server.create_database(name)
    server.psql("CREATE TABLE alembic_version (version_num varchar(32))", database=name)
    return url


def test_a_lost_key_is_not_replaced_beside_a_database_in_use(server):
    store = Store(metadata={"connection": in_use(server, "used")}, jwt={"jwt-secret": "kept"})
    with pytest.raises(
        secrets_init.RefusedError, match=r"Secret fernet is absent.*allowNewKeysBesideData=true"
    ):
        secrets_init.ensure_keys(store, plan())
    assert set(store) == {"metadata", "jwt"}


def test_it_is_replaced_when_that_is_asked_for(server):
    store = Store(metadata={"connection": in_use(server, "reset")})
    secrets_init.ensure_keys(store, plan(allow=True))
    assert {"fernet", "jwt", "api"} <= set(store)


def test_an_unguarded_key_is_made_beside_a_database_in_use(server):
    kept = {"fernet": {"fernet-key": "kept"}, "jwt": {"jwt-secret": "kept"}}
    store = Store(metadata={"connection": in_use(server, "half")}, **kept)
    secrets_init.ensure_keys(store, plan())
    assert "api" in store
    assert store["fernet"] == kept["fernet"]


def test_a_database_that_does_not_answer_refuses_with_the_reason():
    store = Store(metadata={"connection": "postgresql://nobody@127.0.0.1:1/none"})
    with pytest.raises(secrets_init.RefusedError, match="did not answer within 0 s"):
        secrets_init.ensure_keys(store, plan())
    assert set(store) == {"metadata"}


def test_a_missing_connection_names_the_secret():
    with pytest.raises(secrets_init.RefusedError, match="Secret metadata with key 'connection' is absent"):
        secrets_init.ensure_keys(Store(), plan())


def test_the_trial_database_gets_a_password_and_the_connection_carries_it_quoted():
    store = Store()
    made = plan(trial=True)
    secrets_init.ensure_trial_database(store, made["trial_database"], made["database"])
    password = store["postgresql"]["password"]
    assert store["metadata"]["connection"] == f"postgresql://post%20gres:{password}@db.ns:5432/postgres"
    secrets_init.ensure_trial_database(store, made["trial_database"], made["database"])
    assert store["postgresql"]["password"] == password


@pytest.fixture
def job_table(server, request):
    name = f"job_{abs(hash(request.node.name)) % 10**8}"
    url = server.create_database(name)
    server.psql(
        "CREATE TABLE job (job_type text, hostname text, state text, latest_heartbeat timestamptz)",
        database=name,
    )

    here = heartbeat.local_hostname()

    def insert(job_type="TriggererJob", hostname=here, state="running", age="1 second"):
        server.psql(
            f"INSERT INTO job VALUES ('{job_type}', '{hostname}', '{state}', now() - interval '{age}')",
            database=name,
        )

    return url, insert


@pytest.mark.parametrize(
    ("row", "code", "said"),
    [
        ({}, 0, ""),
        ({"age": "1 hour"}, 1, "last heartbeat 36"),
        ({"state": "failed"}, 1, "no running TriggererJob"),
        ({"hostname": "elsewhere"}, 1, "no running TriggererJob"),
        ({"job_type": "SchedulerJob"}, 1, "no running TriggererJob"),
    ],
    ids=["alive", "stale", "failed", "another host", "another job"],
)
def test_the_heartbeat_probe(job_table, row, code, said, monkeypatch, capsys):
    url, insert = job_table
    insert(**row)
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", url)
    assert heartbeat.main(["TriggererJob"]) == code
    assert said in capsys.readouterr().out


def test_without_a_connection_in_the_environment_airflow_itself_is_asked(monkeypatch):
    class Asked(Exception):  # noqa: N818 - stands for the process image being replaced
        pass

    def execvp(file, command):
        raise Asked(command)

    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", raising=False)
    monkeypatch.setattr(heartbeat.os, "execvp", execvp)
    with pytest.raises(Asked) as asked:
        heartbeat.main(["DagProcessorJob"])
    assert asked.value.args[0] == ["airflow", "jobs", "check", "--job-type", "DagProcessorJob", "--local"]


def test_the_probe_names_this_host_as_airflow_does():
    from airflow.utils.net import get_hostname

    assert heartbeat.local_hostname() == get_hostname()
