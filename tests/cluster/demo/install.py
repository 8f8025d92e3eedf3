# SPDX-License-Identifier: Apache-2.0
"""The cluster, the release and the demo's own tools; every function is idempotent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.stories import (
    NAMESPACE,
    RELEASE,
    REPOSITORY,
    TOOLS_NAMESPACE,
    Kubectl,
    KubectlError,
    StoryFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
RULES = REPOSITORY / "dashboards" / "generated" / "steadfast-rules.yaml"
DAGS_CONFIGMAP = "steadfast-demo-dags"
_READY_SECONDS = 600


class InstallError(Exception):
    """A step of the installation failed; the message holds what the tool said."""


def start_cluster() -> None:
    """Run ``make cluster``'s command with its own progress on this terminal."""
    if (
        subprocess.run(
            [sys.executable, "-m", "tests.cluster", "up", "--with", "helm"], cwd=REPOSITORY, check=False
        ).returncode
        != 0
    ):
        raise InstallError("the cluster did not start: see the message above")


def prepare_namespaces(kubectl: Kubectl, workers_at_once: int) -> None:
    """Make the namespaces, the quota and its priority class, and the Dags' ConfigMap."""
    kubectl.apply(json.dumps(_list([_namespace(NAMESPACE), _namespace(TOOLS_NAMESPACE)])))
    quota = (HERE / "manifests" / "airflow.yaml").read_text().replace("WORKERS_AT_ONCE", str(workers_at_once))
    kubectl.apply(quota)
    kubectl.apply(json.dumps(_configmap(DAGS_CONFIGMAP, NAMESPACE, _dags())))


def install_tools(kubectl: Kubectl) -> None:
    """Start Prometheus with the generated rules, and the ledger; both roll when their content changes."""
    if not RULES.exists():
        raise InstallError(f"{RULES.relative_to(REPOSITORY)} is missing: run `make generate`")
    configuration = {
        "prometheus.yml": (HERE / "manifests" / "prometheus.yml").read_text(),
        # here the runbooks are where the reader is: in this repository
        RULES.name: RULES.read_text().replace("https://steadfast.example/", ""),
    }
    code = {"ledger_server.py": (HERE / "ledger_server.py").read_text()}
    for name, content in (("prometheus", configuration), ("ledger", code)):
        kubectl.apply(json.dumps(_configmap(name, TOOLS_NAMESPACE, content)))
        manifest = (HERE / "manifests" / f"{name}.yaml").read_text()
        kubectl.apply(manifest.replace("CONFIG_HASH", _digest(content)))


def install_release(kubectl: Kubectl) -> None:
    """Run ``helm upgrade --install airflow ./chart`` with the demo's values; does not wait for the pods."""
    helm = shutil.which("helm", path=kubectl.environment.get("PATH"))
    if helm is None:
        helm = _ask_for_helm(kubectl)
    command = [
        helm,
        "upgrade",
        "--install",
        RELEASE,
        "./chart",
        "--namespace",
        NAMESPACE,
        "--values",
        str((HERE / "values.yaml").relative_to(REPOSITORY)),
        # The Dag processor reads the files at its start: new files, new pod.
        "--set-string",
        f"dagProcessor.podAnnotations.demo/dags={_digest(_dags())}",
    ]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=kubectl.environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InstallError(f"{' '.join(command)}: {done.stderr.strip()}")


def wait_until_ready(kubectl: Kubectl, say: Callable[[str], None]) -> None:
    """Return when every Deployment and StatefulSet of both namespaces runs what it was last told to.

    Raises InstallError after ten minutes with the pods that are not ready and why.
    """
    deadline = time.monotonic() + _READY_SECONDS
    told = ""
    while waiting := [*_not_ready(kubectl), *_not_ready(kubectl.within(TOOLS_NAMESPACE))]:
        if time.monotonic() > deadline:
            raise InstallError(
                f"not ready after {_READY_SECONDS} s: {', '.join(waiting)}\n{_troubles(kubectl)}"
            )
        text = ", ".join(waiting)
        if text != told:
            say(f"  waiting for {text}")
            told = text
        time.sleep(2)


def _not_ready(kubectl: Kubectl) -> list[str]:
    waiting = []
    for thing in kubectl.get("deployments,statefulsets")["items"]:
        status, wanted = thing.get("status", {}), thing["spec"].get("replicas", 1)
        up_to_date = status.get("observedGeneration", 0) >= thing["metadata"]["generation"]
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
        if not up_to_date or updated < wanted or ready < wanted or status.get("replicas", 0) > wanted:
            waiting.append(str(thing["metadata"]["name"]))
    return waiting


def _troubles(kubectl: Kubectl) -> str:
    lines = []
    for pod in kubectl.get("pods")["items"]:
        status = pod.get("status", {})
        for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            if container.get("ready") or "terminated" in container.get("state", {}):
                continue
            why = container.get("state", {}).get("waiting", {}).get("reason", "not ready")
            name, where = container["name"], pod["metadata"]["name"]
            lines.append(f"--- {where} {name}: {why}")
            try:
                lines.append(kubectl.run("logs", where, "-c", name, "--tail=8"))
            except KubectlError as error:
                lines.append(str(error))
    return "\n".join(lines)


def _ask_for_helm(kubectl: Kubectl) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster", "tool", "helm"],
        cwd=REPOSITORY,
        env={**os.environ, **kubectl.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InstallError("no helm: see the message above")
    return done.stdout.strip().splitlines()[-1]


def _dags() -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted((HERE / "dags").glob("*.py"))}


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _configmap(name: str, namespace: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _digest(content: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def check_sidecar_is_scraped(up: Callable[[], bool], seconds: float = 180) -> None:
    """Return when Prometheus has a sidecar and its scrape works; raises StoryFailedError else."""
    deadline = time.monotonic() + seconds
    while not up():
        if time.monotonic() > deadline:
            raise StoryFailedError(
                f"Prometheus scrapes no sidecar after {seconds:.0f} s (job steadfast-sidecar)"
            )
        time.sleep(2)
