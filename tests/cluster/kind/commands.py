# SPDX-License-Identifier: Apache-2.0
"""Running other programs: output into a step's log, errors that name it, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TAIL_LINES = 15


@dataclass
class _Processes:
    """The commands of this process that run now."""

    running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)
    # a folder with one file per running command, see `end_orphans`
    register: Path | None = None

    def add(self, child: subprocess.Popen[bytes]) -> None:
        with self.lock:
            self.running.add(child)
        if self.register:
            words = (started(child.pid), os.getpid(), started(os.getpid()))
            (self.register / str(child.pid)).write_text(" ".join(map(str, words)))

    def remove(self, child: subprocess.Popen[bytes]) -> None:
        with self.lock:
            self.running.discard(child)
        if self.register:
            (self.register / str(child.pid)).unlink(missing_ok=True)


processes = _Processes()


class CommandError(Exception):
    """A program ended with an error; the message holds the command, its exit code and what it said last."""


class ClusterError(Exception):
    """Something that a person has to read; the message says what to do."""


@dataclass(frozen=True)
class Log:
    """The log file of one step: every command, its output, and notes."""

    path: Path

    def note(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(f"# {time.strftime('%H:%M:%S')} {text}\n")

    def run(
        self,
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Run ``args`` with output into this log.

        Raises:
            CommandError: the program is missing or its exit code is not 0.
        """
        words = [str(word) for word in args]
        self.note(f"$ {shlex.join(words)}")
        with self.path.open("ab") as stream:
            start = stream.tell()
            code = _wait(_spawn(words, stream.fileno(), env, cwd))
        if code:
            raise CommandError(f"`{_short(words)}` ended with {code}:\n{self.tail(start)}")

    def tail(self, start: int = 0) -> str:
        """Return the last lines written since byte ``start``."""
        with self.path.open("rb") as stream:
            stream.seek(start)
            lines = stream.read().decode(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])


def output(args: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 60) -> str:
    """Return what a short command prints on standard output.

    Raises:
        CommandError: missing program, exit code other than 0, or longer than ``timeout`` seconds.
    """
    words = [str(word) for word in args]
    try:
        done = subprocess.run(
            words,
            env=_environment(env),
            capture_output=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"`{_short(words)}`: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise CommandError(f"`{_short(words)}` ended with {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def works(args: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 20) -> bool:
    """Return whether a short command ends well. Never raises."""
    try:
        output(args, env=env, timeout=timeout)
    except CommandError:
        return False
    return True


def stop_all() -> None:
    """End every command that `Log.run` started and that still runs, with its children.

    `Log.run` calls fail at once from now on, until `start_again`: used when one of several steps has failed.
    """
    processes.stopping.set()
    with processes.lock:
        children = list(processes.running)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def start_again() -> None:
    """Let `Log.run` start commands again after a `stop_all`."""
    processes.stopping.clear()


def end_orphans(folder: Path) -> int:
    """End commands whose run was killed before them; return how many there were.

    ``folder`` also becomes the place where this run notes its own: a file named by the command's
    process id that holds when it was started, and the id and the start of the run it belongs to.
    """
    orphans = 0
    folder.mkdir(parents=True, exist_ok=True)
    for note in folder.iterdir():
        with contextlib.suppress(OSError, ValueError):  # gone meanwhile, or half-written by a killed run
            when, owner, owner_when = note.read_text().split()
            if started(int(owner)) == owner_when:
                continue
            if started(int(note.name)) == when:
                orphans += 1
                os.killpg(int(note.name), signal.SIGKILL)
        note.unlink(missing_ok=True)
    processes.register = folder
    return orphans


def started(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return when a process was started, in clock ticks since the boot; None when there is none.

    Together with its id this tells a process from a later one that was given the same id.
    """
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _spawn(
    words: list[str], stream: int, env: Mapping[str, str] | None, cwd: Path | None
) -> subprocess.Popen[bytes]:
    if processes.stopping.is_set():
        raise CommandError(f"`{_short(words)}` was not started: another step failed")
    try:
        child = subprocess.Popen(
            words,
            env=_environment(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"`{_short(words)}`: {error}") from error
    processes.add(child)
    return child


def _wait(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    finally:
        processes.remove(child)


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(extra or {})}


def _short(words: list[str]) -> str:
    text = shlex.join(words)
    return text if len(text) <= 160 else text[:157] + "..."
