# SPDX-License-Identifier: Apache-2.0
"""Programs that the machine must have; Debian packages are installed only where that is ours to do."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind.commands import ClusterError, CommandError, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

APT = ("apt-get", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300")
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Need:
    """A program, the Debian package that brings it, and what it is for."""

    program: str
    package: str
    purpose: str


IP = Need("ip", "iproute2", "looks after the nodes' network interface")
IPTABLES = Need("iptables-save", "iptables", "finds rules that a killed cluster left")
DOCKER = Need("docker", "docker.io", "talks to the engine that runs the nodes")
DOCKERD = Need("dockerd", "docker.io", "runs the nodes")
CONTAINERD = Need("containerd", "containerd", "runs the nodes' containers for Docker")
RUNC = Need("runc", "runc", "starts the nodes' containers")
MMDEBSTRAP = Need("mmdebstrap", "mmdebstrap", "lays out the images' Debian files")
UNSHARE = Need("unshare", "util-linux", "keeps mounts of an image build to itself")


def which(program: str, *, outside: Path | None = None) -> str | None:
    """Find a program on PATH or in the system folders that a user's PATH may lack.

    ``outside`` is a folder not to look in.
    """
    folders = (*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS)
    return shutil.which(program, path=os.pathsep.join(folder for folder in folders if folder != str(outside)))


def missing(needs: Iterable[Need]) -> list[Need]:
    """Return the needs whose program is not there."""
    return [need for need in needs if which(need.program) is None]


def may_install() -> bool:
    """Return whether this is root on Debian or a system made from it."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    family = [line for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))]
    like_debian = any("debian" in line for line in family)
    return os.geteuid() == 0 and like_debian and shutil.which("apt-get") is not None


def ensure(needs: Iterable[Need], log: Log, say: Callable[[str], None]) -> str:
    """Have every need fulfilled; print each Debian package before it is installed.

    Raises:
        ClusterError: something is missing and is not ours to install; the message says what to install.
    """
    absent = missing(needs)
    if not absent:
        return "all there"
    if not may_install():
        listed = "\n".join(f"  {n.program} (Debian package {n.package}): {n.purpose}" for n in absent)
        raise ClusterError(
            f"install these and start again (only root on Debian gets them by itself):\n{listed}"
        )
    packages = {need.package: need.purpose for need in reversed(absent)}
    for package, purpose in sorted(packages.items()):
        say(f"installing the Debian package {package}: {purpose}")
    install = (*APT, "install", *sorted(packages))
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        log.run(install, env=env)
    except CommandError:
        log.note("again, with fresh package lists")
        log.run(("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"), env=env)
        log.run(install, env=env)
    still = missing(absent)
    if still:
        raise ClusterError(f"not there after the installation: {', '.join(n.program for n in still)}")
    return f"installed {', '.join(sorted(packages))}"
