# SPDX-License-Identifier: Apache-2.0
"""A real sidecar process on a free port, and its metrics as a person's Prometheus would read them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from tests.support import sidecar_fork

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.sidecar_fork import ForkedProcess

PATIENCE_SECONDS = 60.0
QUICK = {"service.WATCH_SECONDS": 0.05, "service.LOOK_SECONDS": 0.05}
"""Constants of a forked sidecar: it looks after its files, connections and end more often than a real one."""
COLD = ("-m", "steadfast_sidecar")
"""The program as a container runs it."""


@dataclass
class SidecarProcess:
    """A started sidecar; ``log`` is its stderr so far. With ``tls`` it is asked over HTTPS."""

    process: subprocess.Popen[bytes] | ForkedProcess
    log_file: Path
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and body; ``headers`` are given with ``_`` for ``-``."""
        scheme = "http" if self.tls is None else "https"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.port}{path}", headers=named)  # noqa: S310 - as below
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.tls) as answer:  # noqa: S310 - loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return every sample by name and labels."""
        return parse(self.get("/metrics")[1])

    def value(self, name: str, **labels: str) -> float:
        return self.metrics()[name, frozenset(labels.items())]

    def await_value(self, expected: float, name: str, **labels: str) -> None:
        """Wait until a series has a value; raises AssertionError with the last one seen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := self.value(name, **labels)) != expected:
            assert time.monotonic() < deadline, f"{name}{labels} is {seen}, not {expected}:\n{self.log}"
            time.sleep(0.02)

    def await_status(self, expected: int, path: str) -> None:
        """Wait until a path answers with a status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := self.get(path))[0] != expected:
            assert time.monotonic() < deadline, f"{path} answers {seen}, not {expected}:\n{self.log}"
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def parse(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def start_sidecar(
    *flags: str,
    environ: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    program: Sequence[str] | None = None,
    constants: Mapping[str, float] | None = None,
) -> SidecarProcess:
    """Start one that is ready; the caller ends it.

    ``program`` is what a new Python runs; by default the sidecar is forked from one that has it imported,
    and ``constants`` of its modules are other than they are (see ``sidecar_fork``).
    """
    with tempfile.NamedTemporaryFile(prefix="steadfast-sidecar-", suffix=".log", delete=False) as log:
        arguments = ["serve", "--listen", "127.0.0.1:0", *flags]
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "STEADFAST"))
        }
        environ = {**inherited, **(environ or {})}
        started: subprocess.Popen[bytes] | ForkedProcess
        if program is None:
            started = sidecar_fork.start(arguments, Path(log.name), environ, {**QUICK, **(constants or {})})
        else:
            started = subprocess.Popen([sys.executable, *program, *arguments], stderr=log, env=environ)
    running = SidecarProcess(started, Path(log.name), tls=tls)
    try:
        _await_ready(running)
    except BaseException:
        running.kill()
        raise
    return running


def _await_ready(running: SidecarProcess) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    said = "nothing"
    while True:
        found = re.search(r"serving metrics on port (\d+)", running.log)
        if found:
            running.port = int(found[1])
            try:
                if running.get("/readyz")[0] == HTTPStatus.OK:
                    return
            except OSError as error:
                said = str(error)
        assert running.process.poll() is None, running.log
        assert time.monotonic() < deadline, f"not ready, last answer {said}:\n{running.log}"
        time.sleep(0.02)


@contextlib.contextmanager
def sidecar_process(
    *flags: str,
    environ: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    program: Sequence[str] | None = None,
    constants: Mapping[str, float] | None = None,
) -> Iterator[SidecarProcess]:
    """Start a sidecar and yield it when it is ready; killed and its log removed at the end."""
    running = start_sidecar(*flags, environ=environ, tls=tls, program=program, constants=constants)
    try:
        yield running
    finally:
        running.kill()
        running.log_file.unlink(missing_ok=True)
