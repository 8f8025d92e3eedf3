# SPDX-License-Identifier: Apache-2.0
"""The entry files are small, parse on Python 3.8, and say nothing to an interpreter that is not Airflow's."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PATCH = Path(__file__).resolve().parents[3] / "provider_patch"
ENTRY_FILES = (
    "airflow_steadfast/__init__.py",
    "airflow_steadfast/activation.py",
    "airflow_steadfast/launch_guard/__init__.py",
    "airflow_steadfast/launch_guard/executor.py",
)


def interpreters() -> list[Path]:
    """Pythons older than the patch supports, from PATH and pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = []
    for version in ("3.8", "3.9"):
        named = sorted(root.glob(f"versions/{version}.*/bin/python")) or [shutil.which(f"python{version}")]
        found += [Path(path) for path in named[:1] if path]
    return found


@pytest.mark.parametrize("name", ENTRY_FILES)
def test_it_parses_on_python_3_8(name):
    ast.parse((PATCH / name).read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("name", ENTRY_FILES)
def test_it_holds_a_few_statements(name):
    tree = ast.parse((PATCH / name).read_text(encoding="utf-8"))
    assert sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) <= 14


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PATCH), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-c", code], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", ["pass", "import airflow_steadfast.activation"])
def test_a_foreign_python_starts_and_prints_nothing(code):
    for python in interpreters():
        done = run(python, code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), python


def test_a_foreign_python_loads_nothing_but_entry_files():
    code = (
        "import sys, airflow_steadfast.activation;"
        "print(sorted(name for name in sys.modules if name.startswith('airflow_steadfast')))"
    )
    for python in interpreters():
        assert run(python, code).stdout.strip() == "['airflow_steadfast', 'airflow_steadfast.activation']"
