# SPDX-License-Identifier: Apache-2.0
"""The servers of a benchmark: one PostgreSQL that counts its statements, one kube-apiserver, real Airflow.

They start when first asked for and end with the world.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.fill import copy_first_row
from tests.bench.stopwatch import Loop
from tests.support import airflow_database, apiserver, environment
from tests.support.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from tests.bench.environments import Implementation
    from tests.support.postgres import PostgresServer

_TEMPLATE = """
apiVersion: v1
kind: Pod
metadata: {name: template}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers: [{name: base, image: "docker.io/apache/airflow:3.3.2"}]
"""
_PATIENCE = 300.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Statements:
    """What PostgreSQL executed in one database.

    ``selects`` read a table, ``pings`` are SELECTs of a constant (a pool asks whether its connection lives),
    ``transaction`` counts BEGIN, COMMIT, ROLLBACK and SET; ``other`` is everything else.
    """

    selects: int = 0
    pings: int = 0
    transaction: int = 0
    other: int = 0

    @property
    def all(self) -> int:
        """Every statement."""
        return self.selects + self.pings + self.transaction + self.other


class World:
    """The servers; a context manager."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @cached_property
    def folder(self) -> Path:
        """A scratch folder."""
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="steadfast-bench-")))

    @cached_property
    def postgres(self) -> PostgresServer:
        """The server, with a migrated database to copy from."""
        server = self._stack.enter_context(postgres_server())
        server.psql("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        server.stop()
        server.start()
        server.psql("CREATE EXTENSION pg_stat_statements")
        airflow_database.migrate(server, self.folder / "migrate")
        return server

    @cached_property
    def cluster(self) -> apiserver.ApiServer:
        """The API server."""
        return self._stack.enter_context(apiserver.api_server())

    @cached_property
    def pods(self) -> Any:
        """A client of the API server for the benchmark's own looks."""
        return self.cluster.client()

    def database(self, name: str) -> str:
        """Create a fresh metadata database; returns its name."""
        airflow_database.copy(self.postgres, name)
        return name

    @contextlib.contextmanager
    def subject(self, kind: Implementation, *, rows: int = 1) -> Iterator[Remote]:
        """Start one implementation on a namespace and a database of its own with ``rows`` task instances."""
        remote = Remote(self, kind, self.database(f"bench_{next(_numbers)}"))
        try:
            remote.order("prepare")
            if rows > 1:
                copy_first_row(self.postgres, remote.database, rows)
            remote.order("start", guarded=kind.guarded)
            yield remote
        finally:
            remote.close()


class Remote:
    """A subject in its own process, as the benchmark sees it."""

    def __init__(self, world: World, kind: Implementation, database: str) -> None:
        self.kind = kind
        self.database = database
        self._world = world
        number = next(_numbers)
        self.namespace = f"bench-{number}"
        world.pods.create_namespace({"metadata": {"name": self.namespace}})
        home = world.folder / self.namespace
        home.mkdir()
        (home / "template.yaml").write_text(_TEMPLATE, encoding="utf-8")
        self._log = home / "log"
        # in memory, as the chart has it
        self._handoff = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="steadfast-bench-")
        self.reuse = False
        self._ids: list[str] = []
        listener = Listener(
            str(home / "socket"), family="AF_UNIX", authkey=(key := secrets.token_hex()).encode()
        )
        with listener, self._log.open("wb") as log:
            variables = {**self._variables(home), "BENCH_SOCKET": str(home / "socket"), "BENCH_KEY": key}
            self._process = subprocess.Popen(
                [kind.python, "-m", "tests.bench.subject"],
                cwd=environment.ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            self._connection = _accepted(listener, self._process, self._log)

    def order(self, name: str, **arguments: Any) -> Any:
        """Give an order and return its answer; raises RuntimeError with the subject's own error."""
        self._connection.send((name, arguments))
        done, answer = self._connection.recv()
        if not done:
            raise RuntimeError(
                f"{self.kind.name}: {name} failed: {answer}; the end of its log:\n{self._tail()}"
            )
        return answer

    def loops(self, count: int) -> list[Loop]:
        """Run scheduler loops and return their times."""
        return [Loop(**values) for values in self.order("loops", count=count)]

    def scheduler_loops(self, count: int) -> list[Loop]:
        """Run whole scheduler loops, in which there is nothing to schedule, and return their times."""
        return [Loop(**values) for values in self.order("scheduler_loops", count=count)]

    def take(self, count: int) -> list[str]:
        """Return ids of task instances in random order: of unused ones, or of any where ``reuse`` is set."""
        if len(self._ids) < count:
            which = "" if self.reuse else "WHERE state IS NULL"
            answer = self._world.postgres.psql(
                f"SELECT id FROM task_instance {which} ORDER BY random() LIMIT 20000", self.database
            )
            self._ids = answer.split()
        if len(self._ids) < count:
            raise RuntimeError(f"the database has {len(self._ids)} unused task instances, {count} are wanted")
        taken, self._ids = self._ids[:count], self._ids[count:]
        return taken

    def submit(self, count: int) -> list[str]:
        """Queue that many task instances; returns their ids."""
        ids = self.take(count)
        self.order("submit", ids=ids)
        return ids

    def clean_up(self) -> None:
        """Delete the pods, and let the executor forget its tasks."""
        pods = self._world.pods
        pods.delete_collection_namespaced_pod(self.namespace, grace_period_seconds=0)
        deadline = time.monotonic() + _PATIENCE
        while pods.list_namespaced_pod(self.namespace, limit=1).items:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the pods of {self.namespace} do not go away")
            time.sleep(0.1)
        self.order("settle")

    def pod_count(self) -> int:
        """Count the pods that exist."""
        return len(self._world.pods.list_namespaced_pod(self.namespace).items)

    @contextlib.contextmanager
    def counted(self, into: list[Statements]) -> Iterator[None]:
        """Let PostgreSQL count what the body has executed in this subject's database."""
        server = self._world.postgres
        identify = f"SELECT oid FROM pg_database WHERE datname = '{self.database}'"
        server.psql(f"SELECT pg_stat_statements_reset(0, ({identify}), 0)")
        yield
        answer = server.psql(
            "SELECT calls || ' ' || upper(regexp_replace(query, '\\s+', ' ', 'g')) FROM pg_stat_statements "
            f"WHERE dbid = ({identify})"
        )
        into.append(_statements(answer.splitlines()))

    def close(self) -> None:
        """End the executor and its process."""
        if self._process.poll() is None:
            with contextlib.suppress(Exception):
                self.order("stop")
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._handoff.cleanup()

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def _variables(self, home: Path) -> dict[str, str]:
        options = {
            "IN_CLUSTER": "False",
            "CONFIG_FILE": str(self._world.cluster.kubeconfig),
            "NAMESPACE": self.namespace,
            "POD_TEMPLATE_FILE": str(home / "template.yaml"),
            "WORKER_CONTAINER_REPOSITORY": "docker.io/apache/airflow",
            "WORKER_CONTAINER_TAG": "3.3.2",
        }
        return {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__STEADFAST__HANDOFF_DIR": self._handoff.name,
            airflow_database.CONNECTION: self._world.postgres.url(self.database),
            **{f"AIRFLOW__KUBERNETES_EXECUTOR__{name}": value for name, value in options.items()},
        }


def _accepted(listener: Listener, process: subprocess.Popen[bytes], log: Path) -> Any:
    """Wait for the subject to call; raises RuntimeError with its log where it ended instead."""
    # the listener has no time limit of its own, its socket has
    listener._listener._socket.settimeout(1.0)  # type: ignore[attr-defined]  # no public way
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(TimeoutError):
            return listener.accept()
    process.kill()
    raise RuntimeError(
        f"a subject did not start; the end of its log:\n{log.read_text(errors='replace')[-3000:]}"
    )


def _statements(lines: list[str]) -> Statements:
    counted = dict.fromkeys(("selects", "pings", "transaction", "other"), 0)
    for line in lines:
        calls, _, query = line.partition(" ")
        verb = query.split(maxsplit=1)[0].strip(";")
        if verb == "SELECT":
            kind = "selects" if " FROM " in query else "pings"
        else:
            kind = "transaction" if verb in {"BEGIN", "COMMIT", "ROLLBACK", "SET"} else "other"
        counted[kind] += int(calls)
    return Statements(**counted)
