# SPDX-License-Identifier: Apache-2.0
"""Where a story plays: a running Airflow with its Prometheus and its ledger, and what is done to them."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.stories.airflow_api import AirflowApi
from tests.cluster.stories.kubectl import Kubectl, KubectlError
from tests.cluster.stories.ledger import Ledger
from tests.cluster.stories.metrics import Prometheus
from tests.cluster.stories.outcome import StoryFailedError, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "airflow"
RELEASE = "airflow"
TOOLS_NAMESPACE = "steadfast-demo"
QUOTA = "steadfast-demo-workers"
STALE_DAG = "demo_stale_launches"
DURABLE_DAG = "demo_durable_pod"

# The direct child of the container's init is its main process; the init itself is out of reach of
# signals sent from inside its own process namespace. The shell that runs this has parent 0: no match.
_KILL_MAIN = """
hit=0
for folder in /proc/[0-9]*; do
  read -r stat < "$folder/stat" 2>/dev/null || continue
  set -- ${stat##*) }
  if [ "$2" = 1 ]; then kill -9 "${folder#/proc/}" && hit=1; fi
done
[ "$hit" = 1 ]
"""


@dataclass(frozen=True)
class Stage:
    """Everything a story needs; made by ``open_stage``."""

    kubectl: Kubectl
    airflow: AirflowApi
    metrics: Prometheus
    ledger: Ledger

    def new_run_id(self, story: str) -> str:
        """Give a run id that no earlier demo on this cluster used."""
        return f"{story}-{time.strftime('%Y%m%d-%H%M%S')}"

    def allow_workers(self, pods: int) -> None:
        """Set the quota of the workers' priority class and wait until admission enforces it."""
        patch = json.dumps({"spec": {"hard": {"pods": str(pods)}}})
        self.kubectl.run("patch", "resourcequota", QUOTA, "--type=merge", "-p", patch)
        wait_for(
            f"quota of {pods} worker pods in force",
            lambda: self.kubectl.get("resourcequota", QUOTA).get("status", {}).get("hard", {}).get("pods"),
            lambda enforced: enforced == str(pods),
            60,
            0.3,
        )

    def kill_main_process(self, pod: str, container: str) -> None:
        """SIGKILL the container's main process from outside; the container then ends as if it had crashed."""
        try:
            self.kubectl.run("exec", pod, "-c", container, "--", "sh", "-c", _KILL_MAIN)
        except KubectlError as error:
            # The exec may lose its own end to the container's: exit code 137 is the kill at work.
            if "137" not in str(error):
                raise StoryFailedError(f"could not kill {container} in {pod}: {error}") from error

    def component_pod(self, component: str) -> dict[str, Any]:
        """Return the one live pod of a component of the chart (``scheduler``, ``api-server``, …)."""
        selector = f"component={component},release={RELEASE}"
        pods = self.kubectl.get("pods", "-l", selector)["items"]
        live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if len(live) != 1:
            raise StoryFailedError(
                f"expected one {component} pod, seen {[p['metadata']['name'] for p in live]}"
            )
        found: dict[str, Any] = live[0]
        return found

    def sql(self, statement: str) -> list[list[str]]:
        """Run a statement in Airflow's database by the trial PostgreSQL's own psql; rows as lists of text."""
        pods = self.kubectl.get("pods", "-l", f"component=postgresql,release={RELEASE}")["items"]
        if not pods:
            raise StoryFailedError(
                "no trial PostgreSQL pod (component=postgresql): is postgresql.enabled set?"
            )
        shell = (
            'PGPASSWORD="$POSTGRES_PASSWORD" exec psql -h 127.0.0.1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" '
            '-qAtF "|" -v ON_ERROR_STOP=1'
        )
        text = self.kubectl.run(
            "exec", "-i", pods[0]["metadata"]["name"], "--", "sh", "-c", shell, stdin=statement + ";\n"
        )
        return [line.split("|") for line in text.splitlines() if line]


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """Connect to the release that the demo installed; closes the port-forward at the end.

    Raises KubectlError when there is no cluster.
    """
    kubectl = Kubectl.of_the_cluster(NAMESPACE)
    tools = kubectl.within(TOOLS_NAMESPACE)
    with AirflowApi(kubectl, f"{RELEASE}-api-server") as airflow:
        yield Stage(kubectl, airflow, Prometheus(tools, kubectl), Ledger(tools))


def tidy(stage: Stage, workers_at_once: int) -> None:
    """Undo what earlier stories left: an empty quota, unfinished runs, killed workers. Idempotent."""
    stage.allow_workers(workers_at_once)
    for dag in (STALE_DAG, DURABLE_DAG):
        stage.airflow.wait_for_dag(dag)
        stage.airflow.fail_unfinished_runs(dag)
    killed = ("-l", "kubernetes_executor=True", "--field-selector", "status.phase=Failed")
    stage.kubectl.run("delete", "pods", *killed, "--wait=false")
