# SPDX-License-Identifier: Apache-2.0
"""The state of this checkout: the suites, which files they read, and the commit."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.environment import ROOT, pins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.pairs import Pair

_ON_AIRFLOW = "tests/on_airflow"
_APISERVER = "tests/apiserver"
_PATCH = "provider_patch/airflow_steadfast"
_CODE = ("provider_patch", "sidecar", "pyproject.toml")


@dataclass(frozen=True)
class Suite:
    """Tests that are run together, and what they read: files and folders, without the ``unread`` ones.

    ``programs`` are built before the tests run, where they are not there: the first build takes longer
    than a test may.
    """

    name: str
    path: str
    reads: tuple[str, ...]
    unread: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


# the halves do not import each other, which import-linter holds
_UNREAD = {
    "launch_guard": (f"{_PATCH}/durable_pod",),
    "databases": (f"{_PATCH}/durable_pod",),
    "durable_pod": (f"{_PATCH}/launch_guard",),
    "outbox": (f"{_PATCH}/durable_pod", f"{_PATCH}/launch_guard"),
}


def suites() -> tuple[Suite, ...]:
    """Return the suites of every pair.

    The unit tests, each part of the tests on a real Airflow, and the launch guard's on a real
    kube-apiserver: how a worker pod is built and created differs from provider to provider.
    """
    everything = (*_CODE, "chart", "dashboards", "tests", "Makefile")
    unit = Suite("unit", "tests/unit", everything, (_ON_AIRFLOW, _APISERVER))
    parts = sorted(path for path in (ROOT / _ON_AIRFLOW).iterdir() if any(path.glob("test_*.py")))
    return (unit, *(_part(path.name) for path in parts), _on_apiserver("launch_guard"))


def _part(name: str) -> Suite:
    folder = f"{_ON_AIRFLOW}/{name}"
    return Suite(name, folder, (*_CODE, "tests/support", folder), _UNREAD.get(name, ()))


def _on_apiserver(name: str) -> Suite:
    folder = f"{_APISERVER}/{name}"
    return Suite(
        f"apiserver-{name}",
        folder,
        (*_CODE, "tests/support", folder),
        _UNREAD.get(name, ()),
        programs=("etcd", "kube-apiserver"),
    )


def digest(pair: Pair, suite: Suite) -> str:
    """Return a text that changes with every file that the suite reads on this pair."""
    found = hashlib.sha256()
    for path in sorted({pins(pair), *(path for name in suite.reads for path in _files(ROOT / name))}):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(f"{folder}/" for folder in suite.unread)):
            found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for path in place.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def digest_of(*names: str) -> str:
    """Return a short text that changes with the named files, and with the sources in the named folders."""
    found = hashlib.sha256()
    for name in names:
        whole = ROOT / name
        for path in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def commit() -> str:
    """Return the short name of the commit, marked "+" where files differ from it; "" without git."""
    name = _git("rev-parse", "--short", "HEAD")
    changed = name and _git("status", "--porcelain", "--untracked-files=no", "--", *_CODE, "tests")
    return name + ("+" if changed else "")


def commit_count() -> int:
    """Return how many commits lead to this one; 0 without git."""
    return int(_git("rev-list", "--count", "HEAD") or 0)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
