# SPDX-License-Identifier: Apache-2.0
"""``sidecar/Dockerfile`` without Docker: what it copies is all that the sidecar needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINES = (ROOT / "sidecar" / "Dockerfile").read_text().splitlines()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A folder with the files of the last stage."""
    root = tmp_path_factory.mktemp("image")
    for line in LINES:
        words = line.split()
        if words[:1] != ["COPY"] or words[1].startswith("--"):
            continue
        source, target = ROOT / words[1], root / words[2].lstrip("/")
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into = target / source.name if words[2].endswith("/") else target
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)
    return root


def instruction(name):
    return [line.split(maxsplit=1)[1] for line in LINES if line.startswith(f"{name} ")]


def run(image, *arguments):
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(image / "opt/steadfast"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # nowhere to write
        "HOME": "/nonexistent",
        "TMPDIR": "/nonexistent",
    }
    command = [sys.executable, "-m", "steadfast_sidecar", *arguments]
    return subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=False)


def test_the_copied_files_suffice(image, tmp_path):
    database = f"sqlite:///{tmp_path}/airflow.db"
    done = run(image, "--check", "--handoff-dir", str(tmp_path), "--database-url", database)
    assert (done.returncode, done.stderr) == (0, "")
    assert "outbox: no_state_store" in done.stdout
    program = (
        "import pkgutil, importlib, steadfast_sidecar as package\n"
        "for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
    )
    environ = {"PYTHONPATH": str(image / "opt/steadfast"), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", program], env=environ, cwd="/", check=True)


def test_it_is_not_root_and_has_no_entry_point():
    assert instruction("USER") == ["65534:65534"]
    assert instruction("ENTRYPOINT") == []
    assert instruction("CMD") == ['["python", "-m", "steadfast_sidecar", "serve"]']


def test_its_packages_are_those_of_the_main_pair():
    pinned = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
    main = dict(pinned.findall((ROOT / "requirements/airflow-3.3.2.txt").read_text()))
    own = dict(pinned.findall((ROOT / "requirements/sidecar.txt").read_text()))
    assert {"prometheus-client", "sqlalchemy", "psycopg2-binary"} <= set(own)
    assert own.items() <= main.items()


def test_everything_that_is_copied_passes_the_ignore_file():
    allowed = [
        line[1:]
        for line in (ROOT / "sidecar/Dockerfile.dockerignore").read_text().split()
        if line.startswith("!")
    ]
    for line in instruction("COPY"):
        source = line.split()[0]
        assert source.startswith("--") or any(source.startswith(path) for path in allowed), source
