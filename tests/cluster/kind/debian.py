# SPDX-License-Identifier: Apache-2.0
"""Folders of Debian files, from the mirror that this machine uses itself."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind.versions import DEBIAN_SUITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.cluster.kind.commands import Log

DEFAULT_MIRROR = "http://deb.debian.org/debian"
SOURCES = Path("/etc/apt")
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
# mounts and processes of a build end with it, however it ends
ALONE = ("unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child")
NOT_IN_IMAGES = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/lintian/*",
)


def architecture() -> str:
    """Return the name that Debian, Go and image registries share: ``amd64`` or ``arm64``."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = platform.machine()
    return names.get(machine, machine)


def mirror_in(texts: Iterable[str]) -> str:
    """Return the Debian mirror that apt's source files name, else the public one.

    Both forms are understood: ``deb [options] URI suite ...`` lines and ``URIs:`` fields.
    """
    pattern = re.compile(r"^(?:deb(?: \[[^\]]*\])?|URIs:)\s+(https?://\S+/debian)/?(?:\s|$)", re.MULTILINE)
    for text in texts:
        found = pattern.search(text)
        if found:
            return found.group(1)
    return DEFAULT_MIRROR


def sources() -> tuple[str, ...]:
    """Return the source lines for the images: the suite, its updates, its security fixes."""
    files = [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))]
    mirror = mirror_in(f.read_text(errors="replace") for f in files if f.is_file())
    return (
        f"deb {mirror} {DEBIAN_SUITE} main",
        f"deb {mirror} {DEBIAN_SUITE}-updates main",
        f"deb {mirror}-security {DEBIAN_SUITE}-security main",
    )


def install(packages: Sequence[str], target: Path, log: Log, *, extra: Sequence[str] = ()) -> None:
    """Make ``target`` a whole small Debian with ``packages`` (needs root).

    Raises:
        CommandError: the mirror or a package is not to be had.
    """
    _mmdebstrap("minbase", packages, target, log, extra)


def extract(packages: Sequence[str], target: Path, log: Log, *, leave_out: Sequence[str] = ()) -> None:
    """Unpack ``packages`` and what they depend on into ``target``: files only, no scripts run.

    There is no shell, no ``/etc/passwd`` and no alternatives' link unless a package ships it.

    Raises:
        CommandError: the mirror or a package is not to be had.
    """
    hooks = [f"--hook-dir={MERGED_USR}", *(f"--dpkgopt=path-exclude={path}" for path in leave_out)]
    _mmdebstrap("extract", packages, target, log, hooks)


def _mmdebstrap(variant: str, packages: Sequence[str], target: Path, log: Log, extra: Sequence[str]) -> None:
    log.run(
        [
            *ALONE,
            "mmdebstrap",
            "--mode=root",
            "--format=directory",
            f"--variant={variant}",
            f"--include={','.join(packages)}",
            '--aptopt=Acquire::Languages "none"',
            *(f"--dpkgopt=path-exclude={path}" for path in NOT_IN_IMAGES),
            *extra,
            DEBIAN_SUITE,
            target,
            *sources(),
        ]
    )
    for file in ("etc/resolv.conf", "etc/hostname", "etc/apt/sources.list"):
        (target / file).unlink(missing_ok=True)
