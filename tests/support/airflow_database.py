# SPDX-License-Identifier: Apache-2.0
"""A metadata database that Airflow itself has migrated, on a real PostgreSQL, for this process's Airflow."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer

CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
TEMPLATE = "airflow_migrated"
_KEPT = Path(__file__).resolve().parents[2] / ".build" / "migrated"


def migrate(server: PostgresServer, home: Path, template: str = TEMPLATE) -> str:
    """Create the database ``template`` as ``airflow db migrate`` makes it; a name to copy from.

    What Airflow made is kept as a dump in .build/, one for each set of installed Airflow packages, and
    played back the next time: a migration takes ten times as long.
    """
    url = server.create_database(template)
    kept = _KEPT / f"{_installed()}.sql"
    if kept.exists():
        server.play(kept, template)
        return template
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        CONNECTION: url,
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
    _KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_KEPT) as scratch:
        written = Path(scratch) / kept.name
        written.write_bytes(server.dump(template))
        written.replace(kept)
    return template


def _installed() -> str:
    """Return a name for the Airflow packages here and their versions: who else has them migrates alike."""
    found = sorted(
        f"{name}=={distribution.version}"
        for distribution in importlib.metadata.distributions()
        if (name := distribution.metadata["Name"].lower()).startswith("apache-airflow")
    )
    return f"airflow-{hashlib.sha256(' '.join(found).encode()).hexdigest()[:16]}"


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
