# SPDX-License-Identifier: Apache-2.0
"""Writes and checks the files under ``dashboards/generated``, which the chart links to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.dashboard import dashboard_json
from dashboards.rules import rules_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

GENERATED = Path(__file__).resolve().parent / "generated"


def contents() -> Mapping[str, str]:
    """Return file name -> text of every generated file; the same on every call."""
    return {"steadfast-dashboard.json": dashboard_json(), "steadfast-rules.yaml": rules_yaml()}


def write(folder: Path = GENERATED) -> list[Path]:
    """Write every file whose text differs; return those. Idempotent."""
    changed = stale(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in changed:
        path.write_text(contents()[path.name], encoding="utf-8")
    return changed


def stale(folder: Path = GENERATED) -> list[Path]:
    """Return the files that are missing or are not what the code says."""
    return [
        folder / name
        for name, text in contents().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]
