# SPDX-License-Identifier: Apache-2.0
"""Two scheduler processes, each restarted as Kubernetes restarts a container whose process has ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_PAUSE, _LONGEST_PAUSE, _STABLE_AFTER = 1.0, 10.0, 60.0
_LOOP_BEGINS = re.compile("Adopting or resetting orphaned tasks")
_RUNNING = re.compile(r"executor\.running \((\d+)\)")


class Scheduler:
    """One scheduler's container: a process group that is killed, frozen or left to end as a whole.

    Its log goes on over restarts. ``exits`` counts the ends that no fault of ours made.
    """

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"scheduler-{name}.log"
        self.kills = self.freezes = self.exits = self.starts = 0
        handoff = folder / f"handoff-{name}"
        handoff.mkdir()
        self._environment = {**os.environ, **environment, "AIRFLOW__STEADFAST__HANDOFF_DIR": str(handoff)}
        self._log_began = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._expected = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name=f"scheduler-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        """SIGKILL the container, as the loss of its node does."""
        self._expected.set()
        self.kills += 1
        self._signal(signal.SIGKILL)

    def freeze(self, seconds: float) -> None:
        """Stop the container for a while and let it go on."""
        self.freezes += 1
        process = self._process
        self._signal(signal.SIGSTOP)
        self._stopping.wait(seconds)
        if process is self._process:
            self._signal(signal.SIGCONT)

    def stop(self, seconds: float = 60.0) -> bool:
        """SIGTERM the scheduler and wait; True if it ended by itself within ``seconds``."""
        self._stopping.set()
        process = self._process
        if process is None:
            return True
        self._signal(signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            return False
        self._signal(signal.SIGKILL)
        return True

    def occupied_slots(self) -> int | None:
        """How many task instances its executor holds as running, by its debug dump; None without answer."""
        # before its loop begins it has no handler, and the signal would end it
        if self._await_line(_LOOP_BEGINS, self._log_began, 120.0) is None or self._process is None:
            return None
        before = self.log.stat().st_size
        self._process.send_signal(signal.SIGUSR2)
        found = self._await_line(_RUNNING, before, 30.0)
        return None if found is None else int(found[1])

    def _await_line(self, wanted: re.Pattern[str], since: int, seconds: float) -> re.Match[str] | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self.log.open("rb") as log:
                log.seek(since)
                if (found := wanted.search(log.read().decode(errors="replace"))) is not None:
                    return found
            time.sleep(0.5)
        return None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _keep_running(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            self._expected.clear()
            self.starts += 1
            with self.log.open("ab") as log:
                self._log_began = log.tell()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "airflow", "scheduler"],
                    env=self._environment,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._process.wait()
            self._signal(signal.SIGKILL)  # the container ends with its first process
            if self._stopping.is_set():
                return
            if not self._expected.is_set():
                self.exits += 1
            pause = (
                _FIRST_PAUSE if time.monotonic() - began > _STABLE_AFTER else min(pause * 2, _LONGEST_PAUSE)
            )
            self._stopping.wait(pause)
