# SPDX-License-Identifier: Apache-2.0
"""kubectl as a library: every look at the cluster and every change to it goes through this one class."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

_BUSY = re.compile(
    r"handshake timeout|connection refused|i/o timeout|unexpected EOF|etcdserver|try again later"
)
REPOSITORY = Path(__file__).resolve().parents[3]


class KubectlError(Exception):
    """kubectl ended with an error; the message holds the command and what kubectl said."""


@dataclass(frozen=True)
class Kubectl:
    """One cluster and one default namespace.

    ``environment`` is what the child processes get: PATH with the cluster's tools first, and KUBECONFIG.
    """

    namespace: str
    environment: dict[str, str]

    @classmethod
    def of_the_cluster(cls, namespace: str) -> Kubectl:
        """Find the cluster that ``make cluster`` started, or with CLUSTER=existing the current context.

        Raises KubectlError when there is neither.
        """
        environment = dict(os.environ)
        if os.environ.get("CLUSTER") != "existing":
            environment["KUBECONFIG"] = _ask_cluster("kubeconfig", environment)
            environment["PATH"] = os.pathsep.join(
                (_ask_cluster("path", environment), environment.get("PATH", ""))
            )
        if shutil.which("kubectl", path=environment.get("PATH")) is None:
            raise KubectlError("no kubectl on PATH: install it, or let `make cluster` bring its own")
        return cls(namespace, environment)

    def within(self, namespace: str) -> Kubectl:
        """Give the same cluster with another default namespace."""
        return Kubectl(namespace, self.environment)

    def command(self, *arguments: str) -> list[str]:
        """Give the command line, for a caller that starts the process itself."""
        return [self._program(), "--namespace", self.namespace, *arguments]

    def _program(self) -> str:
        return shutil.which("kubectl", path=self.environment.get("PATH")) or "kubectl"

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run kubectl and return what it printed; raises KubectlError when it fails or takes too long."""
        return self._run(self.command(*arguments), stdin, seconds)

    def _run(self, command: list[str], stdin: str | None, seconds: float) -> str:
        """Run it; a busy API server is asked again, except by ``exec``, which may have had its effect."""
        for pause in (1, 3, 8, None):
            try:
                done = subprocess.run(
                    command,
                    input=stdin,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=seconds,
                    env=self.environment,
                )
            except subprocess.TimeoutExpired as late:
                raise KubectlError(f"{' '.join(command)}: no answer in {seconds:.0f} s") from late
            if done.returncode == 0:
                return done.stdout
            said = done.stderr.strip() or done.stdout.strip()
            if pause is None or "exec" in command or not _BUSY.search(said):
                break
            time.sleep(pause)
        raise KubectlError(f"{' '.join(command)}: {said}")

    def get(self, *arguments: str) -> dict[str, Any]:
        """Run ``kubectl get … -o json`` and return the object."""
        found: dict[str, Any] = json.loads(self.run("get", *arguments, "-o", "json"))
        return found

    def apply(self, manifest: str) -> str:
        """Server-side apply YAML or JSON text, each object in the namespace that it names; idempotent.

        Returns kubectl's lines, one an object.
        """
        arguments = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        return self._run([self._program(), *arguments], manifest, 60)

    def service_get(self, service: str, port: int, path: str, **query: str) -> str:
        """GET a page of a Service through the API server's proxy; raises KubectlError on any other status."""
        return self.run("get", "--raw", self._proxied(service, port, path, query))

    def service_post(self, service: str, port: int, path: str, **query: str) -> str:
        """POST an empty body to a Service through the API server's proxy."""
        return self.run("create", "--raw", self._proxied(service, port, path, query), "-f", "-", stdin="")

    def _proxied(self, service: str, port: int, path: str, query: dict[str, str]) -> str:
        base = f"/api/v1/namespaces/{self.namespace}/services/http:{service}:{port}/proxy/{path}"
        return f"{base}?{urlencode(query, quote_via=quote)}" if query else base


def _ask_cluster(word: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", word],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise KubectlError(f"the cluster gives no {word}: {done.stderr.strip()}: run `make cluster` first")
    return done.stdout.strip()
