# SPDX-License-Identifier: Apache-2.0
"""A real pgbouncer in transaction mode before a test's own PostgreSQL, stopped and removed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.postgres import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import PostgresServer

PROGRAM = Path("/usr/sbin/pgbouncer")


@dataclass
class Pgbouncer:
    """A pooler on loopback with one server connection: every client transaction runs on that one.

    ``url`` is the address of a database behind it. ``stop`` ends it, ``start`` runs it again on its port;
    both idempotent.
    """

    behind: PostgresServer
    port: int
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, database: str, driver: str = "postgresql+psycopg2") -> str:
        return f"{driver}://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        if self._process is not None:
            return
        account = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, self.folder / "pgbouncer.ini"],
                stdout=log,
                stderr=log,
                user=account,
                group=account,
                extra_groups=[] if account else None,
            )
        self._await_listening()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # the immediate shutdown: clients are cut off, as by a pod that is deleted
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=10)

    def _await_listening(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise RuntimeError(f"pgbouncer does not listen: {(self.folder / 'log').read_text(errors='replace')}")


@contextlib.contextmanager
def pgbouncer(behind: PostgresServer) -> Iterator[Pgbouncer]:
    """Start a pooler before ``behind``; raises FileNotFoundError that says what to install."""
    if not PROGRAM.exists():
        raise FileNotFoundError("no pgbouncer found: install Debian's pgbouncer, or run `make env`")
    folder = Path(tempfile.mkdtemp(prefix="steadfast-pgbouncer-"))
    pooler = Pgbouncer(behind, free_port(), folder)
    (folder / "pgbouncer.ini").write_text(
        "[databases]\n"
        f"* = host=127.0.0.1 port={behind.port} user=postgres\n"
        "[pgbouncer]\n"
        "listen_addr = 127.0.0.1\n"
        f"listen_port = {pooler.port}\n"
        "unix_socket_dir =\n"
        "auth_type = any\n"
        "pool_mode = transaction\n"
        "default_pool_size = 1\n"
        "server_reset_query_always = 0\n"
        "server_login_retry = 1\n"
        "query_wait_timeout = 5\n"
    )
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        folder.chmod(0o755)
    try:
        pooler.start()
        yield pooler
    finally:
        pooler.stop()
        shutil.rmtree(folder, ignore_errors=True)
