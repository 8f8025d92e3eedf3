# SPDX-License-Identifier: Apache-2.0
"""An upgrade to other code while an old scheduler still launches: its workers find the code that it names."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.conftest import WORKERS_AT_ONCE
from tests.cluster.demo import install
from tests.cluster.stories import NAMESPACE, RELEASE, REPOSITORY, STALE_DAG, wait_for
from tests.cluster.stories.pods import PodWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.stories import Kubectl, Stage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

SCHEDULER = f"deployment/{RELEASE}-scheduler"


def code_of(spec: dict[str, Any]) -> str:
    """Name of the code ConfigMap that a pod's spec mounts."""
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "steadfast-code"]
    return str(volume["configMap"]["name"])


def upgrade(kubectl: Kubectl, chart: Path) -> None:
    """``helm upgrade`` to another chart with the release's present values."""
    helm = shutil.which("helm", path=kubectl.environment.get("PATH")) or "helm"
    command = [helm, "upgrade", RELEASE, str(chart), "--namespace", NAMESPACE, "--reuse-values"]
    done = subprocess.run(command, env=kubectl.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def changed_chart(folder: Path) -> Iterator[Path]:
    """A copy of the chart with one more line in one file of the patch."""
    copy = folder / "chart"
    shutil.copytree(REPOSITORY / "chart", copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "files" / "airflow_steadfast" / "signals" / "outbox.py").open("a") as source:
        source.write("# another version\n")
    yield copy


@contextmanager
def old_scheduler_stays(kubectl: Kubectl) -> Iterator[None]:
    """Hold the rollout of the scheduler, as a slow node or a long shutdown would; undone afterwards."""
    kubectl.run("rollout", "pause", SCHEDULER)
    try:
        yield
    finally:
        kubectl.run("rollout", "resume", SCHEDULER)


def test_a_worker_of_the_old_scheduler_starts_beside_the_new_code(
    cluster: Kubectl, stage: Stage, tmp_path: Path
) -> None:
    old = code_of(cluster.get(SCHEDULER)["spec"]["template"]["spec"])
    run_id = stage.new_run_id("rollout")
    launched: dict[str, str] = {}

    def code_of_workers_that_succeeded() -> Counter[str]:
        for pod in cluster.get("pods", "-l", f"component=worker,release={RELEASE}")["items"]:
            launched[pod["metadata"]["name"]] = code_of(pod["spec"])
        done = [pod.name for pod in watch.workers(run_id) if "Succeeded" in pod.phases]
        return Counter(launched[name] for name in done if name in launched)

    try:
        with changed_chart(tmp_path) as chart, PodWatch(cluster) as watch, old_scheduler_stays(cluster):
            stage.allow_workers(0)
            stage.airflow.trigger(STALE_DAG, run_id)
            wait_for(
                "tasks queued by the old scheduler",
                lambda: Counter(item["state"] for item in stage.airflow.task_instances(STALE_DAG, run_id)),
                lambda states: states["queued"] > 0,
                120,
            )
            upgrade(cluster, chart)
            new = code_of(cluster.get(SCHEDULER)["spec"]["template"]["spec"])
            assert new != old
            assert cluster.get("configmap", new)["immutable"] is True
            assert cluster.get("configmap", old)["immutable"] is True, "the old code was taken away"

            stage.allow_workers(2)
            wait_for(
                f"a worker with the old code ({old}) that succeeded",
                code_of_workers_that_succeeded,
                lambda done: done[old] > 0,
                300,
            )
            assert not [pod.name for pod in watch.workers(run_id) if "Failed" in pod.phases]
    finally:
        stage.airflow.fail_unfinished_runs(STALE_DAG)
        install.install_release(cluster)
        install.wait_until_ready(cluster, print)
        stage.allow_workers(WORKERS_AT_ONCE)
