# SPDX-License-Identifier: Apache-2.0
"""Has scenarios played in processes of their own, with the environment of their pair."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.outcome import Outcome
from tests.support.airflow_database import CONNECTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.faults.servers import Servers
    from tests.faults.spec import Scenario

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".build" / "faults"
_LIMIT_SECONDS = 900
_JWT_SECRET = "a secret of the fault scenarios, at least sixty-four bytes long as HS512 asks for"

TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata: {name: template}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  containers: [{name: base, image: "docker.io/apache/airflow:3.3.2"}]
"""


class TrialError(RuntimeError):
    """A trial's process did not come to a verdict; the message says why and where its log is."""


def python_of(airflow: str) -> Path:
    """The interpreter of the environment with the newest provider for this Airflow.

    Raises TrialError that says how to make it.
    """
    from tests.support import environment, pairs

    target = environment.folder(pairs.find(airflow)) / "bin" / "python"
    if not target.exists():
        raise TrialError(
            f"no environment of Airflow {airflow}: python3 -m tests.support.environment ensure {airflow}"
        )
    return target


class Players(contextlib.AbstractContextManager["Players"]):
    """The processes that have Airflow loaded, one for each environment and implementation."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], subprocess.Popen[str]] = {}

    def __exit__(self, *_: object) -> None:
        for process in self._found.values():
            process.terminate()
            process.wait()

    def play(self, airflow: str, impl: str, order: dict[str, object]) -> None:
        """Have a scenario played; returns at its end."""
        process = self._process(airflow, impl)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "done\n":
            del self._found[airflow, impl]
            process.kill()

    def _process(self, airflow: str, impl: str) -> subprocess.Popen[str]:
        if (airflow, impl) not in self._found:
            logs = FOLDER / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            with (logs / f"player-{airflow}-{impl}.log").open("wb") as log:
                process = subprocess.Popen(
                    [str(python_of(airflow)), "-m", "tests.faults.trial", impl],
                    cwd=ROOT,
                    env=_environ(
                        {"AIRFLOW__API_AUTH__JWT_SECRET": _JWT_SECRET},
                        Path(tempfile.gettempdir()) / "steadfast-faults-home",
                    ),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                process.kill()
                raise TrialError(f"Airflow {airflow} could not be loaded; see {_shown(Path(log.name))}")
            self._found[airflow, impl] = process
        return self._found[airflow, impl]


def run(
    players: Players, scenario: Scenario, impl: str, servers: Servers, *, size: int, trials: int
) -> tuple[Outcome, float, str]:
    """Return the outcome, the seconds that it took and the end of its error, "" where there was none.

    Raises TrialError where there is no verdict.
    """
    database = f"faults_{scenario.name}_{impl}"
    url = servers.fresh_database(python_of(scenario.airflow), scenario.airflow, database)
    log = FOLDER / "logs" / f"{scenario.name}-{impl}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="steadfast-trial-") as home:
        folder = Path(home)
        (folder / "handoff").mkdir()
        (folder / "template.yaml").write_text(TEMPLATE, encoding="utf-8")
        result = folder / "result.json"
        order = {
            "name": scenario.name,
            "size": size,
            "trials": trials,
            "servers": servers.text(),
            "result": str(result),
            "log": str(log),
            "limit": _LIMIT_SECONDS,
            "environ": {**_options(servers, folder, url), **_prefixed(scenario.config)},
        }
        players.play(scenario.airflow, impl, order)
        if not result.exists():
            raise TrialError(f"ended without a verdict; see {_shown(log)}")
        found = json.loads(result.read_text())
    servers.postgres.psql(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
    return Outcome(**found["outcome"]), float(found["seconds"]), str(found["error"])


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _options(servers: Servers, folder: Path, url: str) -> dict[str, str]:
    options = {
        "KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "KUBERNETES_EXECUTOR__CONFIG_FILE": str(servers.proxy.kubeconfig),
        "KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE": str(folder / "template.yaml"),
        "KUBERNETES_EXECUTOR__WORKER_CONTAINER_REPOSITORY": "docker.io/apache/airflow",
        "KUBERNETES_EXECUTOR__WORKER_CONTAINER_TAG": "3.3.2",
        "KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": "250",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__PARALLELISM": "10000",
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": "10000",
        "CORE__EXECUTOR": "KubernetesExecutor",
        "SCHEDULER__MAX_TIS_PER_QUERY": "0",
        "SCHEDULER__USE_JOB_SCHEDULE": "False",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "100000",
        "API_AUTH__JWT_SECRET": _JWT_SECRET,
        "EXECUTION_API__JWT_EXPIRATION_TIME": "3600",
        "STEADFAST__HANDOFF_DIR": str(folder / "handoff"),
    }
    return {**_prefixed(options), CONNECTION: url}


def _prefixed(options: Mapping[str, str]) -> dict[str, str]:
    return {f"AIRFLOW__{name}": value for name, value in options.items()}


def _environ(options: Mapping[str, str], home: Path) -> dict[str, str]:
    """This process's environment without its Airflow options."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    return {
        **kept,
        **options,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "PYTHONWARNINGS": "ignore",
    }
