# SPDX-License-Identifier: Apache-2.0
"""Results of sections that are not measured again while nothing that they depend on has changed."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from tests.bench.result import Result
from tests.support.environment import BUILD, ROOT, pins
from tests.support.pairs import MAIN_PAIR

if TYPE_CHECKING:
    from tests.bench.plan import Plan

_PATCH = "provider_patch/airflow_steadfast"
_COMMON = ("tests/bench", f"{_PATCH}/kube", f"{_PATCH}/signals", f"{_PATCH}/settings.py")
_GUARD = (*_COMMON, f"{_PATCH}/launch_guard", f"{_PATCH}/capabilities.py")
_WORKER = (*_COMMON, _PATCH)  # a worker imports the durable pod, and may import all


class Kept:
    """The results of one plan, in .build/bench."""

    def __init__(self, plan: Plan) -> None:
        self._folder = BUILD / "bench" / plan.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._begun: dict[str, str] = {}
        self._plan = plan

    def load(self, section: str) -> Result | None:
        """Return the section's result; None where there is none of this code and plan."""
        path = self._folder / f"{section}.json"
        if not path.exists():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Result.of(stored["result"]) if stored["key"] == fingerprint(self._plan, section) else None

    def begin(self, section: str) -> None:
        """Note the code that is about to be measured: a change meanwhile makes the result void."""
        self._begun[section] = fingerprint(self._plan, section)

    def save(self, section: str, result: Result) -> None:
        """Keep it, and what it was computed from."""
        path = self._folder / f"{section}.json"
        text = json.dumps({"key": self._begun[section], "result": result.as_dict()}, indent=1)
        path.with_suffix(".new").write_text(text, encoding="utf-8")
        path.with_suffix(".new").replace(path)


def fingerprint(plan: Plan, section: str) -> str:
    """Hash the plan, the code that is measured, the code that measures, and the pinned requirements."""
    digest = hashlib.sha256(repr(plan).encode())
    for source in _WORKER if section == "worker" else _GUARD:
        place = ROOT / source
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode())
            digest.update(path.read_bytes())
    digest.update(pins(MAIN_PAIR).read_bytes())
    return digest.hexdigest()
