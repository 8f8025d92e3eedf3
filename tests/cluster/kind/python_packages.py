# SPDX-License-Identifier: Apache-2.0
"""Python packages pinned by a requirements file, and the tools that come as Python packages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.cluster.kind.artefacts import Artefact, key_of
from tests.cluster.kind.paths import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log

UV_REQUIREMENTS = REPOSITORY / "requirements" / "uv.txt"


def pip_install(requirements: Path, target: Path, log: Log) -> None:
    """Install wheels into the folder ``target`` with this interpreter's pip, hashes checked.

    Raises:
        CommandError: a package is not to be had or its hash differs.
    """
    log.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"),
            *("--only-binary=:all:", "--require-hashes", "--disable-pip-version-check"),
            "--no-warn-script-location",
            *("--target", target, "--requirement", requirements),
        ]
    )


def uv(store: Path, log: Log) -> Path:
    """Return the pinned `uv`, fetched once."""
    artefact = Artefact(store, "uv", key_of([UV_REQUIREMENTS]))
    artefact.ensure(lambda folder: pip_install(UV_REQUIREMENTS, folder, log))
    return artefact.path / "bin" / "uv"
