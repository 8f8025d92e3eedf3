# SPDX-License-Identifier: Apache-2.0
"""The servers that all scenarios of a command share, and how a trial's process finds them again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.airflow_database import CONNECTION
from tests.support.apiserver import ApiServer, api_server
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 10_000


@dataclass(frozen=True)
class Servers:
    """A kube-apiserver, the proxy before it, a PostgreSQL."""

    cluster: ApiServer
    proxy: FaultProxy
    postgres: PostgresServer

    def text(self) -> str:
        """One line; ``parse`` makes the same object in another process."""
        return json.dumps(
            [
                self.cluster.url,
                str(self.cluster.folder),
                str(self.proxy.folder),
                self.proxy.port,
                self.postgres.port,
                str(self.postgres.folder),
                str(self.postgres.binaries),
            ]
        )

    @classmethod
    def parse(cls, text: str) -> Servers:
        url, folder, proxy_folder, proxy_port, port, pg_folder, binaries = json.loads(text)
        return cls(
            ApiServer(url, Path(folder)),
            FaultProxy(Path(proxy_folder), proxy_port),
            PostgresServer(port, Path(pg_folder), Path(binaries)),
        )

    def fresh_database(self, python: Path, airflow: str, name: str) -> str:
        """A database that this Airflow has migrated, with room in its pool; returns its address."""
        template = f"template_{airflow.replace('.', '_')}"
        known = self.postgres.psql("SELECT datname FROM pg_database").split()
        if template not in known:
            self._migrate(python, template)
        if name in known:
            self.postgres.psql(f'DROP DATABASE "{name}" WITH (FORCE)')
        self.postgres.psql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.postgres.url(name)

    def _migrate(self, python: Path, template: str) -> None:
        with tempfile.TemporaryDirectory(prefix="steadfast-airflow-") as home:
            environ = {
                **os.environ,
                "AIRFLOW_HOME": home,
                CONNECTION: self.postgres.create_database(template),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            }
            done = subprocess.run(
                [str(python), "-m", "airflow", "db", "migrate"],
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != 0:
            self.postgres.psql(f'DROP DATABASE "{template}" WITH (FORCE)')
            raise RuntimeError(f"airflow db migrate failed:\n{done.stderr[-2000:]}")
        self.postgres.psql(f"UPDATE slot_pool SET slots = {SLOTS}", template)


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Start all three; stopped and removed afterwards."""
    with api_server() as cluster, fault_proxy(cluster) as proxy, postgres_server() as postgres:
        yield Servers(cluster, proxy, postgres)
