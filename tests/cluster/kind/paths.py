# SPDX-License-Identifier: Apache-2.0
"""Where everything of the cluster lies: one cache folder, one short run folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]


@dataclass(frozen=True)
class Paths:
    """All folders and files, derived from the cache folder and the run folder's parent.

    Two cache folders never share anything: sockets, interfaces and cgroups carry ``instance``,
    six hex digits of the cache folder's path.
    """

    cache: Path
    run_parent: Path

    @property
    def instance(self) -> str:
        return hashlib.sha256(str(self.cache).encode()).hexdigest()[:6]

    @property
    def artefacts(self) -> Path:
        return self.cache / "artefacts"

    @property
    def logs(self) -> Path:
        return self.cache / "logs"

    @property
    def bin(self) -> Path:
        return self.cache / "bin"

    @property
    def kubeconfig(self) -> Path:
        return self.cache / "kubeconfig"

    @property
    def lock(self) -> Path:
        return self.cache / "lock"

    @property
    def running(self) -> Path:
        """One note per command that runs now, see `commands.end_orphans`."""
        return self.cache / "running"

    @property
    def docker_data(self) -> Path:
        return self.cache / "docker"

    @property
    def containerd_data(self) -> Path:
        return self.cache / "containerd"

    @property
    def run(self) -> Path:
        """Sockets and pid files. Short, since a Unix socket's path holds 107 bytes at most."""
        return self.run_parent / f"steadfast-{self.instance}"

    @property
    def docker_socket(self) -> Path:
        return self.run / "docker.sock"

    @property
    def bridge(self) -> str:
        """The nodes' network interface on the host (at most 15 characters)."""
        return f"sf-{self.instance}"

    @property
    def cgroup_parent(self) -> str:
        return f"/steadfast-{self.instance}"


def find(environ: Mapping[str, str] | None = None) -> Paths:
    """Return the paths for this user: ``${XDG_CACHE_HOME:-~/.cache}/steadfast`` and ``/run``.

    Where ``/run`` is not writable, ``$XDG_RUNTIME_DIR`` or ``/tmp`` takes its place.
    """
    env = os.environ if environ is None else environ
    cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "steadfast"
    run_parent = Path("/run")
    if not os.access(run_parent, os.W_OK):
        run_parent = Path(env.get("XDG_RUNTIME_DIR") or "/tmp")
    return Paths(cache, run_parent)
