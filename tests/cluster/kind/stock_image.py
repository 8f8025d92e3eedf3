# SPDX-License-Identifier: Apache-2.0
"""kind's own node image, used wherever a registry is within reach."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind.versions import STOCK_NODE_IMAGE

if TYPE_CHECKING:
    from tests.cluster.kind.commands import Log
    from tests.cluster.kind.engine import Engine

REGISTRY = "https://registry-1.docker.io/v2/"
CAP_SYS_RESOURCE = 1 << 24


def worth_a_try(engine: Engine) -> bool:
    """Return whether kind's node image may be pulled and would run.

    Its containerd needs CAP_SYS_RESOURCE, which an engine of ours has only where this process has it.
    """
    return (not engine.own or _holds(CAP_SYS_RESOURCE)) and _registry_answers()


def pull(engine: Engine, log: Log) -> str:
    """Pull the node image.

    Raises:
        CommandError: the registry refused.
    """
    log.run([engine.docker, "pull", "--quiet", STOCK_NODE_IMAGE], env=engine.environment())
    return f"pulled {STOCK_NODE_IMAGE}"


def take_kubectl(engine: Engine, target: Path, log: Log) -> None:
    """Copy the image's kubectl to ``target``."""
    env = engine.environment()
    holder = "steadfast-kubectl"
    log.run([engine.docker, "create", "--name", holder, STOCK_NODE_IMAGE], env=env)
    try:
        log.run([engine.docker, "cp", f"{holder}:/usr/bin/kubectl", target], env=env)
    finally:
        log.run([engine.docker, "rm", "--force", "--volumes", holder], env=env)


def _registry_answers() -> bool:
    try:
        with urllib.request.urlopen(REGISTRY, timeout=5):
            return True
    except urllib.error.HTTPError as answer:
        return answer.code == 401  # the registry's way of asking who we are
    except OSError:
        return False


def _holds(capability: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) & capability)
    return False
