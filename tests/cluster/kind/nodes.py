# SPDX-License-Identifier: Apache-2.0
"""Creates, inspects and deletes the cluster itself: what `kind` and `kubectl` are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.kind.commands import CommandError, Log, output, works
from tests.cluster.kind.engine import Engine, running_containers
from tests.cluster.kind.paths import HERE, Paths
from tests.cluster.kind.versions import CLUSTER

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = HERE / "kind.yaml"
NODES = (f"{CLUSTER}-control-plane", f"{CLUSTER}-worker")
ATTEMPTS = 2


@dataclass(frozen=True)
class Nodes:
    """The cluster of one engine."""

    paths: Paths
    engine: Engine

    def environment(self) -> dict[str, str]:
        """Return the variables for programs that use the cluster: PATH, KUBECONFIG, DOCKER_HOST."""
        return {
            **self.engine.environment(),
            "PATH": f"{self.paths.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "KUBECONFIG": str(self.paths.kubeconfig),
        }

    def runs(self, image: str) -> bool:
        """Return whether both nodes run from ``image``, answer and are Ready."""
        if running_containers(self.engine, CLUSTER) != sorted(NODES) or not self.paths.kubeconfig.exists():
            return False
        env = self.environment()
        inspect = [self.engine.docker, "inspect", "--format", "{{.Config.Image}}", *NODES]
        try:
            if set(output(inspect, env=env).split()) != {image}:
                return False
        except CommandError:
            return False
        ready = ["wait", "--for=condition=Ready", "node", *NODES, "--timeout=15s"]
        return works([self._kubectl, *ready], env=env)

    def create(self, image: str, log: Log) -> str:
        """Make the cluster from ``image`` and wait until nodes and system pods are Ready.

        One failed attempt is repeated, its node logs kept: a machine under load misses kubeadm's timeouts.

        Raises:
            CommandError: it failed again.
        """
        self.engine.network(log)
        for attempt in range(1, ATTEMPTS):
            failure = self._attempt(image, log, attempt)
            if failure is None:
                return "created"
            log.note(f"attempt {attempt} failed: {failure}")
            self.delete(log)
        failure = self._attempt(image, log, ATTEMPTS)
        if failure is not None:
            raise failure
        return "created"

    def _attempt(self, image: str, log: Log, attempt: int) -> CommandError | None:
        env = self.environment()
        create: list[str | Path] = [
            self._kind,
            "create",
            "cluster",
            "--name",
            CLUSTER,
            "--image",
            image,
            "--config",
            CONFIG,
        ]
        try:
            log.run([*create, "--kubeconfig", self.paths.kubeconfig, "--wait", "240s", "--retain"], env=env)
            self._wait(log)
        except CommandError as error:
            kept = self.paths.logs / f"nodes-attempt-{attempt}"
            works([self._kind, "export", "logs", "--name", CLUSTER, kept], env=env, timeout=120)
            return error
        return None

    def delete(self, log: Log) -> str:
        """Delete the cluster if it is there. Idempotent."""
        env = self.environment()
        log.run(
            [self._kind, "delete", "cluster", "--name", CLUSTER, "--kubeconfig", self.paths.kubeconfig],
            env=env,
        )
        if self.engine.own:
            works([self.engine.docker, "volume", "prune", "--force"], env=env)
        self.paths.kubeconfig.unlink(missing_ok=True)
        return "deleted"

    def _wait(self, log: Log) -> None:
        env = self.environment()
        wait: list[str | Path] = [self._kubectl, "wait", "--for=condition=Ready", "--timeout=180s"]
        log.run([*wait, "node", "--all"], env=env)
        log.run([*wait, "--namespace", "kube-system", "pod", "--all"], env=env)

    @property
    def _kind(self) -> Path:
        return self.paths.bin / "kind"

    @property
    def _kubectl(self) -> Path:
        return self.paths.bin / "kubectl"
