# SPDX-License-Identifier: Apache-2.0
"""The tools folder: kubectl, kind, docker and, on demand, helm, helm-unittest, kube-apiserver and etcd.

Put first on PATH, its programs talk to this cluster's engine. A tool is the one on PATH where
that is new enough, else one built from its Go module.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import TYPE_CHECKING

from tests.cluster.kind import programs, toolchain
from tests.cluster.kind.commands import ClusterError, CommandError, output
from tests.cluster.kind.versions import HELM_AT_LEAST, KIND_AT_LEAST

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log
    from tests.cluster.kind.engine import Engine
    from tests.cluster.kind.paths import Paths
    from tests.cluster.kind.programs import Program

ON_DEMAND = {
    "helm": programs.HELM,
    "helm-unittest": programs.HELM_UNITTEST,
    # an API server of a test's own; both are in the node image, so a cluster's start has built them
    "kube-apiserver": programs.KUBE,
    "etcd": programs.ETCD,
}


def version_of(text: str) -> tuple[int, ...]:
    """Return the first version such as ``v3.22.0`` in ``text``, ``(0,)`` where there is none."""
    found = re.search(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else (0,)


def on_path(name: str, words: tuple[str, ...], at_least: tuple[int, ...], paths: Paths) -> str | None:
    """Return ``name`` from PATH, our own folder left out, if what ``name words`` says is new enough."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    program = shutil.which(name, path=os.pathsep.join(f for f in folders if f != str(paths.bin)))
    if program is None:
        return None
    try:
        return program if version_of(output([program, *words])) >= at_least else None
    except CommandError:
        return None


def link(paths: Paths, name: str, target: str | Path) -> Path:
    """Have ``name`` in the tools folder be ``target``. Idempotent, never seen half-made."""
    paths.bin.mkdir(parents=True, exist_ok=True)
    draft = paths.bin / f".{name}-{os.getpid()}"  # two pairs of the matrix may ask for one tool at once
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    return draft.replace(paths.bin / name)


def kind(paths: Paths, log: Log) -> str:
    """Have `kind` in the tools folder."""
    found = on_path("kind", ("version",), KIND_AT_LEAST, paths)
    if found:
        link(paths, "kind", found)
        return f"found {found}"
    return _built(paths, "kind", programs.KIND, log)


def kubectl(paths: Paths) -> None:
    """Have `kubectl` in the tools folder: the one of the node image."""
    link(paths, "kubectl", programs.KUBE.binary(paths.artefacts))


def docker(paths: Paths, engine: Engine) -> None:
    """Have a `docker` in the tools folder that talks to the cluster's engine."""
    paths.bin.mkdir(parents=True, exist_ok=True)
    host = engine.environment().get("DOCKER_HOST")
    export = f"export DOCKER_HOST={shlex.quote(host)}\n" if host else ""
    draft = paths.bin / ".docker"
    draft.write_text(f'#!/bin/sh\n{export}exec {shlex.quote(engine.docker)} "$@"\n')
    draft.chmod(0o755)
    draft.replace(paths.bin / "docker")


def demand(paths: Paths, name: str, log: Log) -> str:
    """Have the tool ``name`` in the tools folder, built when needed.

    Raises:
        ClusterError: no such tool.
    """
    if name not in ON_DEMAND:
        raise ClusterError(f"no tool '{name}': choose from {', '.join(ON_DEMAND)}")
    if name == "helm":
        found = on_path("helm", ("version", "--short"), HELM_AT_LEAST, paths)
        if found:
            link(paths, name, found)
            return f"found {found}"
    return _built(paths, name, ON_DEMAND[name], log)


def _built(paths: Paths, name: str, program: Program, log: Log) -> str:
    toolchain.fetch(toolchain.find(toolchain.wanted_by(program.folder)), paths.artefacts, log)
    did = program.build(paths.artefacts, log)
    link(paths, name, program.binary(paths.artefacts))
    return did
