# SPDX-License-Identifier: Apache-2.0
"""Everything that a soak needs to run: database, kube-apiserver, Execution API, Airflow's configuration."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]  # two calls, and no stubs in the environment

from tests.soak.plan import HEALTH_THRESHOLD, QUEUED_TIMEOUT
from tests.support import airflow_database
from tests.support.apiserver import ApiServer, api_server
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.postgres import PostgresServer, free_port, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "workers"
IMAGE = "docker.io/apache/airflow:3.3.2"
EXECUTORS = {
    "steadfast": "KubernetesExecutor:airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor",
    "upstream": "KubernetesExecutor",
}
PUBLISH_RETRIES = 3
"""[kubernetes_executor] task_publish_max_retries: a careful operator's value, for both implementations."""

_TEMPLATE = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: template}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers: [{{name: base, image: "{IMAGE}"}}]
"""

# Bodies of what the executors ask for: which launch a created pod stands for, what a patch or delete says.
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: RequestResponse
    verbs: [create]
    resources: [{group: "", resources: [pods]}]
  - level: Request
    verbs: [patch, delete]
    resources: [{group: "", resources: [pods]}]
  - level: None
"""


@dataclass(frozen=True)
class Stage:
    """A running stage. ``execution_api`` is the workers' address; ``folder`` holds every log."""

    folder: Path
    database: PostgresServer
    cluster: ApiServer
    proxy: FaultProxy
    execution_api: str
    environment: dict[str, str]

    def kube_apiserver(self) -> psutil.Process:
        """The process of the kube-apiserver, for a fault to stop and continue."""
        for process in psutil.Process().children():
            if process.name().startswith("kube-apiserver"):
                return process
        raise RuntimeError("the kube-apiserver is not running")


@contextlib.contextmanager
def stage(folder: Path, impl: str) -> Iterator[Stage]:
    """Start everything but the schedulers and the pod player, in ``folder``; stopped afterwards.

    The environment of this process is Airflow's configuration then; it must not have imported Airflow yet.
    """
    if "airflow" in sys.modules:
        raise RuntimeError("a stage needs a process that has not imported Airflow yet")
    dags = folder / "dags"
    shutil.copytree(Path(__file__).parent / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "template.yaml").write_text(_TEMPLATE, encoding="utf-8")
    with (
        postgres_server() as database,
        api_server(audit_policy=_AUDIT_POLICY) as cluster,
        fault_proxy(cluster) as proxy,
    ):
        # when a change could be seen is when it was committed
        database.psql("ALTER SYSTEM SET track_commit_timestamp = on")
        database.stop()
        database.start()
        port = free_port()
        url = f"http://127.0.0.1:{port}/execution/"
        environment = configuration(folder, impl, url, proxy.kubeconfig)
        environment[airflow_database.CONNECTION] = database.url("soak")
        os.environ.update(environment)
        airflow_database.migrate(database, folder, template="soak")
        _create_namespace(cluster)
        with _execution_api(folder, port):
            yield Stage(folder, database, cluster, proxy, url, environment)


def configuration(folder: Path, impl: str, execution_api: str, kubeconfig: Path) -> dict[str, str]:
    """Airflow's configuration as environment variables: what an HA deployment sets, with short thresholds."""
    sections: dict[str, dict[str, object]] = {
        "CORE": {
            "EXECUTOR": EXECUTORS[impl],
            "DAGS_FOLDER": folder / "dags",
            "LOAD_EXAMPLES": False,
            "PARALLELISM": 48,
            "MAX_ACTIVE_TASKS_PER_DAG": 1000,
            "MAX_ACTIVE_RUNS_PER_DAG": 100,
            "DEFAULT_POOL_TASK_SLOT_COUNT": 1000,
            "EXECUTION_API_SERVER_URL": execution_api,
            "FERNET_KEY": "",
            "SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
        },
        "API_AUTH": {"JWT_SECRET": "the-soak-signs-its-launch-tokens-with-these-64-characters-of-text"},
        "API": {"SECRET_KEY": "the-soak-needs-one"},
        "LOGGING": {"BASE_LOG_FOLDER": folder / "logs"},
        "SCHEDULER": {
            "JOB_HEARTBEAT_SEC": 2,
            "SCHEDULER_HEALTH_CHECK_THRESHOLD": HEALTH_THRESHOLD,
            "ORPHANED_TASKS_CHECK_INTERVAL": 10,
            "TASK_QUEUED_TIMEOUT": QUEUED_TIMEOUT,
            "TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": 10,
            "TASK_INSTANCE_HEARTBEAT_TIMEOUT": 90,
        },
        "KUBERNETES_EXECUTOR": {
            "IN_CLUSTER": False,
            "CONFIG_FILE": kubeconfig,
            "NAMESPACE": NAMESPACE,
            "POD_TEMPLATE_FILE": folder / "template.yaml",
            "WORKER_CONTAINER_REPOSITORY": IMAGE.partition(":")[0],
            "WORKER_CONTAINER_TAG": IMAGE.partition(":")[2],
            "WORKER_PODS_CREATION_BATCH_SIZE": 16,
            "TASK_PUBLISH_MAX_RETRIES": PUBLISH_RETRIES,
            "KUBE_CLIENT_REQUEST_ARGS": '{"_request_timeout": [5, 10]}',
        },
        # a busy test machine is no fault of either implementation
        "WORKERS": {"EXECUTION_API_TIMEOUT": 30},
        # longer than a check's back-off, well below the queued timeout
        "STEADFAST": {"GUARD_MAX_HOLD": QUEUED_TIMEOUT // 2},
    }
    flat = {
        f"AIRFLOW__{section}__{key}": str(value)
        for section, values in sections.items()
        for key, value in values.items()
    }
    return {**flat, "AIRFLOW_HOME": str(folder), "PYTHONUNBUFFERED": "1"}


def _create_namespace(cluster: ApiServer) -> None:
    from kubernetes.client import models as k8s

    cluster.client().create_namespace(k8s.V1Namespace(metadata=k8s.V1ObjectMeta(name=NAMESPACE)))


@contextlib.contextmanager
def _execution_api(folder: Path, port: int) -> Iterator[None]:
    """Run Airflow's own API server with the Execution API alone."""
    command = [sys.executable, "-m", "airflow", "api-server", "--apps", "execution", "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (folder / "api-server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _await(f"http://127.0.0.1:{port}/execution/health", process, folder / "api-server.log")
        yield
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            try:
                urllib.request.urlopen(url, timeout=10)  # noqa: S310 - http on loopback
            except urllib.error.HTTPError as error:
                if error.code >= 500:
                    raise
            return
        time.sleep(0.5)
    raise RuntimeError(f"the API server did not become ready; its log ends with:\n{log.read_text()[-2000:]}")
