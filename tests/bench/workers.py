# SPDX-License-Identifier: Apache-2.0
"""Real workers, started as their pods start them, with and without the patch in their environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import airflow_steadfast
from tests.apiserver.durable_pod.execution_api import execution_api
from tests.bench import environments
from tests.support import airflow_database
from tests.support.environment import ROOT
from tests.support.postgres import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.world import World

DAGS = Path(__file__).with_name("dags")
_SOURCE = ROOT / "provider_patch" / "airflow_steadfast"


class Workers:
    """Starts workers one at a time; made by ``workers``."""

    def __init__(self, folder: Path, variables: dict[str, str], python: Path) -> None:
        self._folder = folder
        self._variables = variables
        self._python = python
        self._mount = mount(folder / "mount")
        self._number = 0

    def start(self, dag_id: str, *, patched: bool) -> float:
        """Run one task in a worker of its own; returns the CPU seconds used before the task began."""
        self._number += 1
        note = self._folder / f"cpu-{self._number}"
        variables = {**self._variables, "BENCH_CPU_FILE": str(note)}
        if patched:
            variables |= {"PYTHONPATH": str(self._mount), "AIRFLOW__STEADFAST__PATCH_KPO": "True"}
        command = [str(self._python), "-m", "airflow.sdk.execution_time.execute_workload"]
        done = subprocess.run(
            [*command, "--json-string", _workload(dag_id, f"run_{self._number}")],
            cwd=self._folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != 0 or not note.exists():
            raise RuntimeError(f"a worker failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return int(note.read_text(encoding="ascii")) / 1e9

    def warm_up(self, dag_id: str) -> None:
        """Let each kind of worker write the bytecode of what it imports, as an image has it.

        The patch's own is removed again: a ConfigMap's mount is read-only and has none.
        """
        with mock.patch.dict(self._variables):
            del self._variables["PYTHONDONTWRITEBYTECODE"]
            for patched in (False, True):
                self.start(dag_id, patched=patched)
        for cache in [*self._mount.rglob("__pycache__")]:
            shutil.rmtree(cache)


def mount(folder: Path) -> Path:
    """Lay out the patch as the chart's ConfigMap does: sources, metadata and entry points."""
    for source in _SOURCE.rglob("*.py"):
        target = folder / "airflow_steadfast" / source.relative_to(_SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    version = airflow_steadfast.__version__
    metadata = folder / f"airflow_steadfast-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: airflow-steadfast\nVersion: {version}\n"
    )
    (metadata / "entry_points.txt").write_text("[airflow.policy]\nsteadfast = airflow_steadfast.activation\n")
    return folder


@contextlib.contextmanager
def workers(world: World) -> Iterator[Workers]:
    """Serve the Execution API on a database that has the Dags; yields what starts workers for them."""
    folder = world.folder / "workers"
    dags = folder / "dags"
    shutil.copytree(DAGS, dags)
    common = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__FERNET_KEY": "",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
    }
    url = airflow_database.copy(world.postgres, "workers")
    python = environments.stock()
    # the worker's own level stays: only this process is to be quiet
    with (
        mock.patch.dict(os.environ, {**common, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}),
        airflow_database.airflow_on(url),
        execution_api(free_port(), folder / "execution-api.log") as api,
    ):
        from tests.apiserver.durable_pod import scheduler

        scheduler.prepare_database()
        variables = {
            **common,
            "PATH": os.environ["PATH"],
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": api,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        yield Workers(folder, variables, python)


def _workload(dag_id: str, run_id: str) -> str:
    """Create a run with its task queued, and return the workload as the executor passes it to the pod."""
    from airflow._shared.timezones import timezone
    from airflow.executors.workloads import ExecuteTask
    from airflow.models.dagbag import DBDagBag
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(dag_id, session=session)
        run = dag.create_dagrun(
            run_id=run_id,
            run_after=timezone.utcnow(),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )
        (task_instance,) = run.get_task_instances(session=session)
        task_instance.try_number = 1
        task_instance.state = TaskInstanceState.QUEUED
        session.flush()
        return str(ExecuteTask.make(task_instance).model_dump_json())
