# SPDX-License-Identifier: Apache-2.0
"""Compiles chart/values.schema.yaml to the JSON that Helm reads.

``python -m tests.chart.schema compile`` writes it; ``check`` exits 1 when the committed JSON is not what
the source gives. YAML anchors and merges are resolved and the then unused ``definitions`` left out, so that
Helm's messages name the user's key and no reference. The keys of ``steadfast.settings`` are those of the
patch's own settings table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from airflow_steadfast import settings

CHART = Path(__file__).resolve().parents[2] / "chart"
SOURCE = CHART / "values.schema.yaml"
TARGET = CHART / "values.schema.json"


def compiled() -> str:
    """Text of values.schema.json for the present source; raises yaml.YAMLError when that is no YAML."""
    schema = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    schema.pop("definitions", None)
    passed_on = schema["properties"]["steadfast"]["properties"]["settings"]["properties"]
    passed_on.update(
        {setting.name: {"type": ["string", "number", "boolean"]} for setting in settings.table()}
    )
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    if argv == ["compile"]:
        TARGET.write_text(compiled(), encoding="utf-8")
        return 0
    if argv == ["check"]:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == compiled():
            return 0
        print(
            "chart/values.schema.json is out of date: run python -m tests.chart.schema compile",
            file=sys.stderr,
        )
        return 1
    print("usage: python -m tests.chart.schema compile|check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
