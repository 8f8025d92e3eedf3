# SPDX-License-Identifier: Apache-2.0
"""Results that are there already: a run that is interrupted goes on, and a change of code runs it anew."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from tests.faults.outcome import Outcome
from tests.faults.runner import FOLDER, ROOT


@dataclass(frozen=True)
class Kept:
    """A result and how long it took."""

    outcome: Outcome
    seconds: float


class State:
    """One file for each run, named by its scenario, its implementation and the code that it showed.

    Upstream's runs depend on these scenarios and its own version, the guard's on the guard as well.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._folder = FOLDER / "results"
        self._folder.mkdir(parents=True, exist_ok=True)
        harness = _digest("tests/faults", "tests/support", "requirements")
        self._codes = {"upstream": harness, "steadfast": harness + _digest("provider_patch")}
        if fresh:
            for path in self._folder.glob("*.json"):
                path.unlink()

    def has(self, name: str, impl: str) -> bool:
        return self.get(name, impl) is not None

    def get(self, name: str, impl: str) -> Kept | None:
        """The result of this code; None where there is none."""
        path = self._folder / f"{name}-{impl}.json"
        if not path.exists():
            return None
        found = json.loads(path.read_text())
        if found["code"] != self._codes[impl]:
            return None
        return Kept(Outcome(**found["outcome"]), found["seconds"])

    def put(self, name: str, impl: str, outcome: Outcome, seconds: float) -> None:
        text = json.dumps({"code": self._codes[impl], "outcome": outcome.as_dict(), "seconds": seconds})
        path = self._folder / f"{name}-{impl}.json"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def seconds(self) -> float:
        """How long all results of this code took, one after the other."""
        found = (self.get(*path.stem.rsplit("-", 1)) for path in self._folder.glob("*.json"))
        return sum(kept.seconds for kept in found if kept)


def _digest(*folders: str) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".txt") and "__pycache__" not in path.parts:
                found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
