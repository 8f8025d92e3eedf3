# SPDX-License-Identifier: Apache-2.0
"""The stand-in for docker.io/apache/airflow: a true subset of the stock image, with its habits.

User 50000 of group 0, home ``/home/airflow`` with a virtual environment in ``~/.local``,
``AIRFLOW_HOME=/opt/airflow`` writable for the group, dumb-init in front. Packages are those of
``requirements/image-airflow-3.3.2.txt`` and nothing else.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cluster.kind import debian
from tests.cluster.kind.artefacts import Artefact, key_of
from tests.cluster.kind.images.base import Image, text_files
from tests.cluster.kind.paths import HERE, REPOSITORY
from tests.cluster.kind.python_packages import uv
from tests.cluster.kind.versions import AIRFLOW_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log

REQUIREMENTS = REPOSITORY / "requirements" / "image-airflow-3.3.2.txt"
ENTRYPOINT = HERE / "images" / "airflow-entrypoint"
PACKAGES = (
    *("ca-certificates", "curl", "dumb-init", "netcat-openbsd"),
    *("procps", "python3", "python3-venv", "tzdata"),
)
PYTHON = "3.11"  # Debian 12's
UID, GID = 50000, 0
HOME = "home/airflow"
AIRFLOW_HOME = "opt/airflow"
VENV = f"{HOME}/.local"


def packages(store: Path) -> Artefact:
    """Return the virtual environment that is made beside the Debian files and then put into them."""
    return Artefact(store, "airflow-packages", key_of([REQUIREMENTS, PYTHON, debian.architecture()]))


def install_packages(store: Path, log: Log) -> str:
    """Install the pinned packages, hashes checked; return ``cached`` or ``built``."""

    def build(folder: Path) -> None:
        program = uv(store, log)
        here = {"UV_PYTHON_DOWNLOADS": "never"}
        log.run([program, "venv", "--quiet", "--python", PYTHON, folder / "venv"], env=here)
        log.run(
            [
                *(program, "pip", "sync", "--quiet", "--require-hashes", "--only-binary", ":all:"),
                # without compiled files every process of a read-only image compiles Airflow again
                "--compile-bytecode",
                *("--python", folder / "venv" / "bin" / "python", REQUIREMENTS),
            ],
            env=here,
        )

    return packages(store).ensure(build)


def image(store: Path) -> Image:
    version = AIRFLOW_IMAGE.rpartition(":")[2]
    return Image(
        name="airflow",
        tags=(AIRFLOW_IMAGE,),
        parts=(packages(store).key, *PACKAGES, ENTRYPOINT, HERE / "images" / "airflow.py"),
        lay_out=lambda root, log: _lay_out(store, root, log),
        config={
            "User": str(UID),
            "WorkingDir": f"/{AIRFLOW_HOME}",
            "Entrypoint": ["/usr/bin/dumb-init", "--", "/entrypoint"],
            "Env": [
                f"PATH=/{VENV}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                f"HOME=/{HOME}",
                f"VIRTUAL_ENV=/{VENV}",
                f"AIRFLOW_HOME=/{AIRFLOW_HOME}",
                f"AIRFLOW_USER_HOME_DIR=/{HOME}",
                f"AIRFLOW_UID={UID}",
                f"AIRFLOW_VERSION={version}",
                "DUMB_INIT_SETSID=1",
                "GUNICORN_CMD_ARGS=--worker-tmp-dir /dev/shm",
                "LANG=C.UTF-8",
                "LC_ALL=C.UTF-8",
                "PYTHONUNBUFFERED=true",
            ],
        },
    )


def _lay_out(store: Path, root: Path, log: Log) -> None:
    debian.install(PACKAGES, root, log)
    with (root / "etc" / "passwd").open("a") as passwd:
        passwd.write(f"airflow:x:{UID}:{GID}:First Last,,,:/{HOME}:/bin/bash\n")
    log.run(["chroot", root, "/usr/bin/python3", "-m", "venv", f"/{VENV}"])
    _move_packages(packages(store).path / "venv", root / VENV)
    shutil.copy2(ENTRYPOINT, root / "entrypoint")
    for name in ("dags", "logs", "plugins", "config"):
        (root / AIRFLOW_HOME / name).mkdir(parents=True, exist_ok=True)
    text_files(root, {f"{HOME}/.bashrc": "export PATH=~/.local/bin:$PATH\n"})
    # what is still uncompiled: the environment's own pip
    log.run(["chroot", root, f"/{VENV}/bin/python", "-m", "compileall", "-q", "-j", "0", f"/{VENV}/lib"])
    for folder in (HOME, AIRFLOW_HOME):
        log.run(["chown", "-R", f"{UID}:{GID}", root / folder])
        log.run(["chmod", "-R", "g=u", root / folder])


def _move_packages(made: Path, venv: Path) -> None:
    """Copy what was installed in ``made`` into the image's own ``venv``; commands get its interpreter."""
    site = f"lib/python{PYTHON}/site-packages"
    shutil.copytree(made / site, venv / site, dirs_exist_ok=True, symlinks=True)
    interpreter = f"#!/{VENV}/bin/python"
    for script in (made / "bin").iterdir():
        if script.is_symlink() or script.name.startswith(("activate", "python", "pip", "deactivate")):
            continue
        data = script.read_bytes()
        target = venv / "bin" / script.name
        target.write_bytes(with_interpreter(data, interpreter))
        target.chmod(0o755)


def with_interpreter(script: bytes, interpreter: str) -> bytes:
    """Return ``script`` with its first line naming ``interpreter`` if a Python of some folder stood there.

    Both forms that installers write are known: ``#!<python>``, and for long paths a shell line
    ``'''exec' <python> "$0" "$@"`` below ``#!/bin/sh``. Anything else is returned unchanged.
    """
    lines = script.split(b"\n")
    if lines[0].startswith(b"#!/") and lines[0].rpartition(b"/")[2].startswith(b"python"):
        lines[0] = interpreter.encode()
    elif lines[0] == b"#!/bin/sh" and len(lines) > 2 and lines[1].startswith(b"'''exec'"):
        lines[:3] = [interpreter.encode()]
    return b"\n".join(lines)
