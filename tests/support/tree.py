# SPDX-License-Identifier: Apache-2.0
"""The state of this checkout: which files a pair's suites were run with, and at which commit."""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

from tests.support.environment import ROOT, pins

if TYPE_CHECKING:
    from tests.support.pairs import Pair

# All that the suites run or read; a change of the docs asks for no new run.
_FOLDERS = ("provider_patch", "sidecar", "chart", "dashboards", "tests")
_FILES = ("pyproject.toml", "Makefile")


def digest(pair: Pair) -> str:
    """Return a text that changes with every file that the suites run or read on this pair."""
    found = hashlib.sha256()
    paths = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted([*paths, *(ROOT / name for name in _FILES), pins(pair)]):
        if "__pycache__" not in path.parts:
            found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def commit() -> str:
    """Return the short name of the commit, marked "+" where files differ from it; "" without git."""
    name = _git("rev-parse", "--short", "HEAD")
    changed = name and _git("status", "--porcelain", "--untracked-files=no", "--", *_FOLDERS, *_FILES)
    return name + ("+" if changed else "")


def commit_count() -> int:
    """Return how many commits lead to this one; 0 without git."""
    return int(_git("rev-list", "--count", "HEAD") or 0)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
