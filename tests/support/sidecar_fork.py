# SPDX-License-Identifier: Apache-2.0
"""Sidecar processes by fork from one that has imported everything: milliseconds instead of most of a second.

Run as a module it is that one: it reads orders from stdin, a JSON object a line, and answers each with a
number. It has one thread and opens nothing, so that a child is what a fresh process would be.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class ForkedProcess:
    """The part of ``subprocess.Popen`` that tests of a sidecar use."""

    pid: int
    args: Sequence[str]
    returncode: int | None = None

    def __post_init__(self) -> None:
        # The pid stays ours until the parent is asked for its status.
        self._lock = threading.Lock()
        self._handle = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status; raises subprocess.TimeoutExpired."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, where it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                return None
            with self._lock:
                if self.returncode is None:
                    self.returncode = _parent.order(wait=self.pid)
                    os.close(self._handle)
        return self.returncode


def start(
    arguments: Sequence[str], log: Path, environ: Mapping[str, str], constants: Mapping[str, float]
) -> ForkedProcess:
    """Run ``steadfast-sidecar`` with these arguments and only this environment; stderr goes to ``log``.

    ``constants`` of its modules (``poller.STUCK_AFTER_SECONDS``) are set before it begins.
    """
    pid = _parent.order(
        arguments=list(arguments), log=str(log), environ=dict(environ), constants=dict(constants)
    )
    return ForkedProcess(pid, arguments)


class _Parent:
    """The process that forks; started with the first sidecar, gone with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def order(self, **order: object) -> int:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                atexit.register(self._end)
            given, answers = self._process.stdin, self._process.stdout
            assert given is not None
            assert answers is not None
            given.write(json.dumps(order) + "\n")
            given.flush()
            return int(answers.readline())

    def _end(self) -> None:
        if self._process is not None:
            self._process.communicate()


_parent = _Parent()


def _serve(orders: IO[str]) -> None:
    from steadfast_sidecar import cli, service

    assert service  # the command line imports it late, and each child would anew
    for line in orders:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                os._exit(_be_sidecar(cli.main, **order))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _be_sidecar(
    main: Any, arguments: list[str], log: str, environ: dict[str, str], constants: dict[str, float]
) -> int:
    os.environ.clear()
    os.environ.update(environ)
    for name, value in constants.items():
        module, _, constant = f"steadfast_sidecar.{name}".rpartition(".")
        getattr(sys.modules[module], constant)  # one that is gone must not be set in vain
        setattr(sys.modules[module], constant, value)
    nothing = os.open(os.devnull, os.O_RDWR)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for target, source in enumerate((nothing, nothing, written)):
        os.dup2(source, target)
    try:
        return int(main(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1


if __name__ == "__main__":
    _serve(sys.stdin)
