# SPDX-License-Identifier: Apache-2.0
"""Results that are there already: a run that is interrupted goes on, and a change of code runs it anew."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from tests.faults import spec
from tests.faults.outcome import Outcome
from tests.faults.runner import FOLDER, ROOT


@dataclass(frozen=True)
class Kept:
    """A result and how long it took."""

    outcome: Outcome
    seconds: float


_GUARD = tuple(
    f"provider_patch/airflow_steadfast/{name}"
    for name in ("launch_guard", "kube", "signals", "settings.py", "capabilities.py", "import_hook.py")
)
_HARNESS = (
    *(f"tests/faults/{name}.py" for name in ("audit", "dags", "kube", "outcome", "runner", "scheduler")),
    *(f"tests/faults/{name}.py" for name in ("servers", "stage", "stage2", "table", "trial", "worker")),
    *(f"tests/support/{name}.py" for name in ("fault_proxy", "fault_proxy_server", "fault_wire", "faults")),
    "requirements/airflow-3.3.2.txt",
    "requirements/pairs/2.11.2+10.25.0.txt",
)


class State:
    """One file for each run, with the code that it showed.

    A run depends on the harness, its scenario's module and the pinned packages; the guard's on the guard
    as well.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._folder = FOLDER / "results"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._harness, self._guard = _digest(*_HARNESS), _digest(*_GUARD)
        if fresh:
            for path in self._folder.glob("*.json"):
                path.unlink()

    def _code(self, name: str, impl: str) -> str:
        module = spec.SCENARIOS[name].run.__module__.replace(".", "/")
        guard = self._guard if impl == "steadfast" else ""
        return f"{self._harness} {_digest(f'{module}.py')} {guard}".strip()

    def has(self, name: str, impl: str) -> bool:
        return self.get(name, impl) is not None

    def get(self, name: str, impl: str) -> Kept | None:
        """The result of this code; None where there is none."""
        path = self._folder / f"{name}-{impl}.json"
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        if found["code"] != self._code(name, impl):
            return None
        return Kept(Outcome(**found["outcome"]), found["seconds"])

    def put(self, name: str, impl: str, outcome: Outcome, seconds: float) -> None:
        text = json.dumps({"code": self._code(name, impl), "outcome": outcome.as_dict(), "seconds": seconds})
        path = self._folder / f"{name}-{impl}.json"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def seconds(self) -> float:
        """How long all results of this code took, one after the other."""
        found = (self.get(name, impl) for name in spec.SCENARIOS for impl in spec.IMPLS)
        return sum(kept.seconds for kept in found if kept)


def _digest(*paths: str) -> str:
    """A digest of files, and of the sources in folders."""
    found = hashlib.sha256()
    for path in paths:
        whole = ROOT / path
        for one in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            found.update(str(one.relative_to(ROOT)).encode() + b"\0" + one.read_bytes())
    return found.hexdigest()[:12]
