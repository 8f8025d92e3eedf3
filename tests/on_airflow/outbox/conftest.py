# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg2
import pytest

from tests.support import airflow_database as airflow_databases
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.requires import HAS_STATE_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERS = itertools.count(1)

WRITE_EVENT = (
    # What Airflow's own backend sends: a second write of a key changes the row, never adds one.
    "INSERT INTO task_state_store (dag_run_id, task_id, map_index, key, dag_id, run_id, value, updated_at) "
    "VALUES (%s, %s, %s, %s, 'd', 'r', '{\"v\": 1}', now()) "
    "ON CONFLICT (dag_run_id, task_id, map_index, key) DO UPDATE SET updated_at = now()"
)


def run_airflow(url: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@dataclass(frozen=True)
class AirflowDatabase:
    """A database that Airflow has migrated, with one dag run (``dag_run_id`` 0: none) for a store's rows."""

    server: PostgresServer
    name: str
    dag_run_id: int

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def sql(self, statement: str) -> str:
        return self.server.psql(statement, self.name)

    def connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(host="127.0.0.1", port=self.server.port, user="postgres", dbname=self.name)

    def write(self, *keys: str, task_id: str = "t", map_index: int = -1) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for key in keys:
                cursor.execute(WRITE_EVENT, (self.dag_run_id, task_id, map_index, key))
        connection.close()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="session")
def template(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    return airflow_databases.migrate(server, tmp_path_factory.mktemp("airflow"))


@pytest.fixture
def airflow_database(server: PostgresServer, template: str) -> AirflowDatabase:
    name = f"airflow_{next(_NUMBERS)}"
    server.psql(f"CREATE DATABASE {name} TEMPLATE {template}")
    if not HAS_STATE_STORE:
        return AirflowDatabase(server, name, 0)
    number = server.psql(
        "INSERT INTO dag_run (dag_id, run_id, run_type, run_after) "
        "VALUES ('d', 'r', 'manual', now()) RETURNING id",
        name,
    )
    return AirflowDatabase(server, name, int(number))
