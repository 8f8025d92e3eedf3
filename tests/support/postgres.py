# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server of a test's own: own data folder, own port, stopped and removed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BINARIES = (
    Path("/usr/lib/postgresql/15/bin"),
    Path("/usr/lib/postgresql/16/bin"),
    Path("/usr/lib/postgresql/17/bin"),
)


@dataclass(frozen=True)
class PostgresServer:
    """A running server on loopback, user ``postgres``, trusted; ``url`` gives its SQLAlchemy address."""

    port: int
    folder: Path
    binaries: Path

    def url(self, database: str = "postgres", driver: str = "postgresql+psycopg2") -> str:
        return f"{driver}://postgres@127.0.0.1:{self.port}/{database}"

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement, return its bare output; raises CalledProcessError with the server's text."""
        done = subprocess.run(
            [*self._program("psql", database), "-v", "ON_ERROR_STOP=1", "-qAtc", statement],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def dump(self, database: str) -> bytes:
        """Return everything in a database as statements for ``play``."""
        command = [*self._program("pg_dump", database), "--no-owner"]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def play(self, dump: Path, database: str) -> None:
        """Fill a fresh database with what ``dump`` returned, as one transaction."""
        command = [*self._program("psql", database), "-v", "ON_ERROR_STOP=1", "-q1f", str(dump)]
        subprocess.run(command, check=True, capture_output=True)

    def _program(self, name: str, database: str) -> list[str]:
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database]
        return [str(self.binaries / name), *address]

    def create_database(self, name: str) -> str:
        self.psql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._control("start", "-l", str(self.folder / "log"), "-o", options)

    def _control(self, verb: str, *arguments: str) -> None:
        command = [
            str(self.binaries / "pg_ctl"),
            "-D",
            str(self.folder / "data"),
            "-w",
            "-t",
            "60",
            *arguments,
            verb,
        ]
        account = _account()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=account, group=account)


def binaries() -> Path:
    """The folder of the server's programs; raises FileNotFoundError that says what to install."""
    for folder in _BINARIES:
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    raise FileNotFoundError("no PostgreSQL server found: install Debian's postgresql-15, or run `make env`")


def _account() -> str | None:
    """The server refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server in a fresh folder and yield it; stopped and removed afterwards, also on an error."""
    folder = Path(tempfile.mkdtemp(prefix="steadfast-pg-"))
    server = PostgresServer(free_port(), folder, binaries())
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    try:
        initialise = [
            str(server.binaries / "initdb"),
            "-D",
            str(folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
        ]
        account = _account()
        subprocess.run(initialise, check=True, stdout=subprocess.DEVNULL, user=account, group=account)
        server.start()
        yield server
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
