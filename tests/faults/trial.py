# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios with one executor; each in a process of its own, forked from one that has Airflow loaded.

    python -m tests.faults.trial IMPL

Takes one JSON object a line from its standard input (name, size, trials, servers, result, log, environ),
answers "done" when the scenario's process has ended. Loading Airflow anew for each would take most of the
time; the fork happens before there is any thread, connection or executor.

For upstream the process is one in which Steadfast is not installed: its entry point is hidden before
Airflow is imported, and that nothing of it was loaded is checked at the end.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def hide(distribution: str, package: str) -> None:
    """Make this process one without a distribution: no metadata, no entry points, no package."""
    found = importlib.metadata.Distribution.discover

    def visible(**arguments: Any) -> Any:
        return (
            one
            for one in found(**arguments)
            if (one.metadata["Name"] or "").lower().replace("_", "-") != distribution
        )

    importlib.metadata.Distribution.discover = staticmethod(visible)  # type: ignore[method-assign]  # the same call, fewer answers
    sys.modules[package] = None  # type: ignore[assignment]  # an import of it fails, says the import system


def play(order: dict[str, Any], impl: str) -> None:
    """Play a scenario and write its outcome."""
    from tests.faults import spec
    from tests.faults.outcome import Outcome
    from tests.faults.servers import Servers

    scenario = spec.load()[order["name"]]
    total, started, error = Outcome(), time.monotonic(), ""
    try:
        stage = _stage(scenario, impl, order["size"], Servers.parse(order["servers"]))
        for number in range(order["trials"]):
            stage.begin(number)
            try:
                total.add(scenario.run(stage))
            finally:
                stage.end()
        stage.close()
    except Exception:
        error = traceback.format_exc()
    loaded = [module for module in sys.modules if module.startswith("airflow_steadfast.")]
    if impl == "upstream" and loaded:
        error += f"\nupstream's process had parts of Steadfast loaded: {loaded[:3]}"
    Path(order["result"]).write_text(
        json.dumps({"outcome": total.as_dict(), "error": error, "seconds": time.monotonic() - started})
    )


def _stage(scenario: Any, impl: str, size: int, servers: Any) -> Any:
    if scenario.airflow.startswith("2."):
        from tests.faults.stage2 import Stage2

        return Stage2(scenario, impl, size, servers)
    from tests.faults.stage import Stage

    return Stage(scenario, impl, size, servers)


def _load() -> None:
    """Import what every scenario needs; nothing here connects or starts a thread."""
    from importlib import import_module

    from airflow import __version__

    for name in (
        "airflow.jobs.scheduler_job_runner",
        "airflow.models.serialized_dag",
        "airflow.providers.cncf.kubernetes.executors.kubernetes_executor",
        "airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils",
    ):
        import_module(name)
    if __version__.startswith("2."):
        return
    for name in (
        "airflow.api_fastapi.execution_api.app",
        "airflow.providers.standard.operators.bash",
        "airflow.providers.standard.sensors.bash",
        "fastapi.testclient",
    ):
        import_module(name)
    from tests.faults.worker import ExecutionApi

    ExecutionApi.warm()


def _child(order: dict[str, Any], impl: str) -> None:
    os.setpgid(0, 0)
    with Path(order["log"]).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    for name in [name for name in os.environ if name.startswith("AIRFLOW__")]:
        del os.environ[name]
    os.environ.update(order["environ"])
    from airflow import settings

    settings.dispose_orm()
    settings.configure_vars()
    settings.configure_orm()
    play(order, impl)


def main(impl: str) -> None:
    """Serve orders until the standard input ends."""
    if impl == "upstream":
        hide("airflow-steadfast", "airflow_steadfast")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _load()
    answers.write("ready\n")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                _child(order, impl)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        signal.signal(signal.SIGTERM, lambda *_, pid=pid: _end(pid))
        _await(pid, order["limit"])
        answers.write("done\n")


def _end(pid: int) -> None:
    """When told to end: with the scenario's process, its executors and their watchers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os._exit(0)


def _await(pid: int, limit: float) -> None:
    """Wait for a scenario's process, at most ``limit`` seconds; what it left is ended with it."""
    deadline = time.monotonic() + limit
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.1)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main(sys.argv[1])
