# SPDX-License-Identifier: Apache-2.0
"""A release of its own in a namespace that enforces "restricted": keys, Jobs, kept code, rollback.

Airflow's own components are left out: this is about what Helm and the Jobs do, and costs the cluster little.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cluster.stories import REPOSITORY, Kubectl, KubectlError, wait_for
from tests.cluster.test_rollout import changed_chart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CHART = REPOSITORY / "chart"
NAMESPACE = "steadfast-release-test"
RELEASE = "small"
COMPONENTS = ("scheduler", "apiServer", "dagProcessor", "triggerer")
ENFORCED = "pod-security.kubernetes.io/enforce=restricted"


class Helm:
    """Helm on one release."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._environment = kubectl.environment
        self._program = shutil.which("helm", path=kubectl.environment.get("PATH")) or "helm"

    def __call__(self, *arguments: str) -> str:
        command = [self._program, *arguments, "--namespace", NAMESPACE]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def upgrade(self, chart: Path, *settings: str) -> None:
        """Install or upgrade, and wait for what is awaited by a user who passes --wait."""
        off = ",".join(f"{component}.enabled=false" for component in COMPONENTS)
        sets = [part for setting in (off, *settings) for part in ("--set", setting)]
        self("upgrade", "--install", RELEASE, str(chart), *sets)


@pytest.fixture
def kubectl(cluster: Kubectl) -> Iterator[Kubectl]:
    inside = cluster.within(NAMESPACE)
    inside.run("delete", "namespace", NAMESPACE, "--ignore-not-found", seconds=180)
    inside.run("create", "namespace", NAMESPACE)
    inside.run("label", "namespace", NAMESPACE, ENFORCED)
    yield inside
    inside.run("delete", "namespace", NAMESPACE, "--wait=false")


def key(kubectl: Kubectl, name: str) -> str:
    """Value of a one-key Secret; empty while it is absent."""
    try:
        (value,) = kubectl.get("secret", name)["data"].values()
    except KubectlError:
        return ""
    return base64.b64decode(value).decode()


def job(kubectl: Kubectl, part: str) -> str:
    """Name of the newest Job of one kind."""
    jobs = [
        item["metadata"] for item in kubectl.get("jobs")["items"] if f"-{part}-" in item["metadata"]["name"]
    ]
    return str(max(jobs, key=lambda found: found["creationTimestamp"])["name"])


def await_jobs(kubectl: Kubectl) -> None:
    for part in ("secrets", "run-airflow-migrations"):
        kubectl.run(
            "wait", f"job/{job(kubectl, part)}", "--for=condition=Complete", "--timeout=240s", seconds=250
        )


def said_by(kubectl: Kubectl, name: str) -> str:
    """A Job's log; empty while its pod has not started."""
    try:
        return kubectl.run("logs", f"job/{name}", "--tail=5")
    except KubectlError:
        return ""


def code_maps(kubectl: Kubectl) -> set[str]:
    names = {item["metadata"]["name"] for item in kubectl.get("configmaps")["items"]}
    return {name for name in names if "-steadfast-code-" in name}


def test_keys_outlive_an_upgrade_and_a_lost_one_is_not_replaced(kubectl: Kubectl) -> None:
    helm = Helm(kubectl)
    helm.upgrade(CHART)
    await_jobs(kubectl)
    fernet, token = key(kubectl, f"{RELEASE}-fernet-key"), key(kubectl, f"{RELEASE}-jwt-secret")
    assert len(base64.urlsafe_b64decode(fernet)) == 32
    assert len(token) == 64

    kubectl.run("delete", "secret", f"{RELEASE}-jwt-secret")
    helm.upgrade(CHART, "steadfast.secrets.databaseWaitSeconds=60")
    refused = wait_for(
        "the secrets Job's refusal",
        lambda: said_by(kubectl, job(kubectl, "secrets")),
        lambda text: "refused" in text,
        120,
        2,
    )
    assert f"Secret {RELEASE}-jwt-secret is absent, but the database already holds Airflow's data" in refused
    assert key(kubectl, f"{RELEASE}-jwt-secret") == ""

    helm.upgrade(CHART, "steadfast.secrets.allowNewKeysBesideData=true")
    await_jobs(kubectl)
    assert key(kubectl, f"{RELEASE}-jwt-secret") not in {"", token}
    assert key(kubectl, f"{RELEASE}-fernet-key") == fernet


def test_the_code_of_every_revision_is_kept_and_a_rollback_returns_to_it(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    helm = Helm(kubectl)
    helm.upgrade(CHART)
    first = code_maps(kubectl)
    with changed_chart(tmp_path) as changed:
        helm.upgrade(changed)
    both = code_maps(kubectl)
    assert len(first) == 1
    assert len(both) == 2
    assert first < both

    helm("rollback", RELEASE, "1")
    assert next(iter(first)) in helm("get", "manifest", RELEASE)
    helm("uninstall", RELEASE)
    assert code_maps(kubectl) == both
