# SPDX-License-Identifier: Apache-2.0
"""What the implementations run in: environments that differ in the provider, or in having the patch."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support import environment
from tests.support.pairs import MAIN_PAIR, find

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_CHECK = find("3.3.2+10.22.0")


@dataclass(frozen=True)
class Implementation:
    """One of the three that are compared: its name in the tables, its Python, whether it has the guard."""

    name: str
    python: Path
    guarded: bool = False


def without_check() -> Implementation:
    """The last provider that creates pods without a check."""
    folder = environment.ensure(WITHOUT_CHECK)
    return Implementation(f"provider {WITHOUT_CHECK.provider}, no check", folder / "bin" / "python")


def native() -> Implementation:
    """The newest tested provider with its own check."""
    folder = environment.ensure(MAIN_PAIR)
    return Implementation(f"provider {MAIN_PAIR.provider}, its own check", folder / "bin" / "python")


def steadfast() -> Implementation:
    """The newest tested provider with the launch guard."""
    folder = environment.ensure(MAIN_PAIR)
    return Implementation("Steadfast", folder / "bin" / "python", guarded=True)


def stock() -> Path:
    """Make the main pair's environment without the patch, for what a worker's image has; its Python."""
    target = environment.BUILD / "venv-bench-stock"
    wanted = environment.pins(MAIN_PAIR)
    stamp = target / ".stamp"
    key = hashlib.sha256(wanted.read_bytes()).hexdigest()
    python = target / "bin" / "python"
    if stamp.exists() and stamp.read_text() == key:
        return python
    shutil.rmtree(target, ignore_errors=True)
    tool = environment.uv()
    interpreter = environment.interpreter(MAIN_PAIR.python)
    if interpreter is None:
        raise environment.MissingError(f"no Python {MAIN_PAIR.python} on PATH or in pyenv")
    subprocess.run([tool, "venv", "-q", "--python", interpreter, target], check=True)
    install = ["pip", "install", "-q", "--python", str(python), "--require-hashes", "-r", str(wanted)]
    subprocess.run([tool, *install], check=True)
    stamp.write_text(key)
    return python
