# SPDX-License-Identifier: Apache-2.0
"""A damaged install: any module but an entry file may be broken or missing, and Airflow works natively.

Airflow is started once with an undamaged copy; a fork of that process loads a copy with one module
damaged through Airflow's own policy loader, constructs the executor and imports the operator.
What a damaged or other provider does is in ``test_seams``.
"""

from __future__ import annotations

import atexit
import compileall
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# the first test waits for two hundred trials, a minute of computing that a busy machine stretches
pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1200)]

PATCH = Path(__file__).resolve().parents[3] / "provider_patch" / "airflow_steadfast"
ENTRY_FILES = {"__init__.py", "activation.py", "launch_guard/__init__.py", "launch_guard/executor.py"}
DAMAGES = {"broken": "this is no Python(\n", "missing": None}

TRIAL = """
import importlib, json, logging, os, sys
import airflow.settings, pluggy
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor

# what each trial would import anew, without the modules that the patch waits for
kubernetes_executor.KubernetesExecutor().end()
import airflow.providers.cncf.kubernetes.operators.pod
for module in ("operators.pod", "triggers.pod"):
    sys.modules.pop("airflow.providers.cncf.kubernetes." + module, None)

def forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "airflow_steadfast"]:
        del sys.modules[name]
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "PostImportFinder"]

class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            self.lines.append(record.getMessage())

def trial(folder):
    forget()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    seen = Lines()
    logging.getLogger("airflow_steadfast").addHandler(seen)
    airflow.settings.load_policy_plugins(pluggy.PluginManager("airflow.policy"))
    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor
    executor = GuardedKubernetesExecutor()
    executor.end()
    by_executor, seen.lines = seen.lines, []
    if "operator" in folder:
        from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
        KubernetesPodOperator(task_id="t")
    return {
        "executor": by_executor,
        "operator": seen.lines,
        "stock": isinstance(executor, kubernetes_executor.KubernetesExecutor),
        "guarded": hasattr(type(executor), "_steadfast_guard"),
        "from": sys.modules["airflow_steadfast"].__file__,
    }

for folder in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            answer = trial(folder)
        except BaseException as error:
            answer = {"error": repr(error)}
        sys.stdout.write("ANSWER" + json.dumps(answer) + "\\n")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


@functools.cache
def compiled() -> Path:
    """One compiled copy of the package to copy from: a trial then compiles only what it damages."""
    target = Path(tempfile.mkdtemp(prefix="steadfast-compiled-")) / "airflow_steadfast"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    shutil.copytree(PATCH, target, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(target, quiet=1)
    return target


def copy(target: Path, name: str = "", content: str | None = None) -> Path:
    """A copy of the package in ``target`` with one file replaced, or removed where ``content`` is None."""
    shutil.copytree(compiled(), target / "airflow_steadfast", symlinks=False)
    if name:
        file = target / "airflow_steadfast" / name
        file.unlink()
        if content is not None:
            file.write_text(content, encoding="utf-8")
    return target


def environment(home: Path, **more: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__STEADFAST__PATCH_KPO": "True",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Airflow 2 asks for another database than the SQLite that nothing here uses
        "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
        **more,
    }


def modules(*parts: str) -> list[str]:
    names = [str(path.relative_to(PATCH)) for part in parts for path in sorted(PATCH.glob(part))]
    return [name for name in names if name not in ENTRY_FILES]


GUARD_MODULES = modules("launch_guard/*.py", "*.py", "signals/*.py")
OPERATOR_MODULES = modules("durable_pod/*.py", "kube/*.py")
TRIALS = {
    "": [("", "whole")],
    "guard": [(name, damage) for damage in DAMAGES for name in GUARD_MODULES],
    "operator": [(name, "broken") for name in OPERATOR_MODULES],
    "entry": [(name, "broken") for name in sorted(ENTRY_FILES)]
    + [("activation.py", "missing"), ("launch_guard/executor.py", "missing")],
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[str, str], dict]]:
    """What each trial reported, by kind, then by file and damage."""
    root = tmp_path_factory.mktemp("damaged")
    folders = {}
    for kind, trials in TRIALS.items():
        for number, (name, damage) in enumerate(trials):
            folder = root / f"{kind or 'operator'}-{number}{'' if kind else '-whole'}"
            folders[kind, name, damage] = copy(folder, name, DAMAGES.get(damage))
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, *map(str, folders.values())],
        env=environment(root / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert len(lines) == len(folders), done.stderr[-3000:]
    found: dict[str, dict[tuple[str, str], dict]] = {kind: {} for kind in TRIALS}
    for ((kind, name, damage), folder), answer in zip(folders.items(), lines, strict=True):
        assert answer.get("from", str(folder)).startswith(str(folder)), (name, answer)
        found[kind][name, damage] = answer
    return found


def test_an_undamaged_install_says_nothing(answers):
    answer = answers[""]["", "whole"]
    assert answer["guarded"]
    assert answer["executor"] == answer["operator"] == []


def test_a_damaged_module_of_the_guard_leaves_the_stock_executor(answers):
    for (name, damage), answer in answers["guard"].items():
        if (name, damage) == ("signals/__init__.py", "missing"):
            continue  # the rest is still a package: start() finds out
        assert "error" not in answer, (name, damage, answer)
        assert answer["stock"], (name, damage, answer)
        assert len(answer["executor"]) == 1, (name, damage, answer)
        assert answer["guarded"] is (name == "import_hook.py"), (name, damage, answer)


def test_a_damaged_module_of_the_durable_pod_leaves_the_stock_operator(answers):
    for (name, _), answer in answers["operator"].items():
        assert "error" not in answer, (name, answer)
        shared = name.startswith("kube/")  # what both halves need: then neither works
        assert len(answer["executor"]) <= shared, (name, answer)
        # the operator's and the trigger's class are patched apart, each says so once
        for named in ("KubernetesPodOperator", "KubernetesPodTrigger"):
            assert sum(line.startswith(named) for line in answer["operator"]) <= 1, (name, answer)
        assert len(answer["operator"]) <= 2, (name, answer)
    (line,) = answers["operator"]["durable_pod/install.py", "broken"]["operator"]
    assert "install.py" in line


def test_a_damaged_entry_file_is_an_error_that_names_it(answers):
    for (name, _), answer in answers["entry"].items():
        named = {name, f"airflow_steadfast.{name.removesuffix('.py').replace('/', '.')}"}
        assert any(text in answer["error"] for text in named), (name, answer)


def start(folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import airflow; from airflow.executors.executor_loader import ExecutorLoader;"
        "print(ExecutorLoader.get_default_executor().__class__.__mro__[1].__name__)"
    )
    executor = "KubernetesExecutor:airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(home, PYTHONPATH=str(folder), AIRFLOW__CORE__EXECUTOR=executor),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_with_a_damaged_module_starts_with_one_line(tmp_path):
    done = start(copy(tmp_path / "copy", "launch_guard/guarded.py", "no Python(\n"), tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert "KubernetesExecutor" in done.stdout
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "not active" in line]
    assert len(lines) == 1, lines


def test_a_process_with_a_damaged_entry_file_stops_and_names_it(tmp_path):
    done = start(copy(tmp_path / "copy", "activation.py", "no Python(\n"), tmp_path / "home")
    assert done.returncode != 0
    assert "airflow_steadfast/activation.py" in done.stderr
