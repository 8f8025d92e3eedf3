# SPDX-License-Identifier: Apache-2.0
"""A metadata database that Airflow itself has migrated, on a real PostgreSQL, for this process's Airflow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import PostgresServer

CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
TEMPLATE = "airflow_migrated"


def migrate(server: PostgresServer, home: Path, template: str = TEMPLATE) -> str:
    """Create the database ``template`` and let ``airflow db migrate`` fill it; a name to copy from."""
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        CONNECTION: server.create_database(template),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return template


def copy(server: PostgresServer, name: str, template: str = TEMPLATE) -> str:
    """Create the database ``name`` as a copy of ``template`` and return its address."""
    server.psql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return server.url(name)


@contextlib.contextmanager
def airflow_on(url: str) -> Iterator[None]:
    """Point the Airflow of this process to a database, also where it was on another one before."""
    before = os.environ.get(CONNECTION)
    os.environ[CONNECTION] = url
    _reconfigure()
    try:
        yield
    finally:
        if before is None:
            del os.environ[CONNECTION]
        else:
            os.environ[CONNECTION] = before
        _reconfigure()


def _reconfigure() -> None:
    from airflow import settings

    settings.dispose_orm()
    settings.configure_vars()
    settings.configure_orm()
