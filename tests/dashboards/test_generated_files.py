# SPDX-License-Identifier: Apache-2.0
"""What lies in ``dashboards/generated`` is what the code says, the same each time, and what Grafana reads."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import __main__ as command
from dashboards import dashboard, generate

DOCUMENT = dashboard.build()
CONFIG_MAP_LIMIT = 1024 * 1024


def test_the_committed_files_are_current():
    assert generate.stale() == []


def test_two_processes_write_the_same_bytes():
    say = "from dashboards.generate import contents; print(sorted(contents().items()))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", say],
            cwd=generate.GENERATED.parents[1],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_check_names_the_file_that_drifted(tmp_path, monkeypatch, capsys):
    shutil.copytree(generate.GENERATED, tmp_path, dirs_exist_ok=True)
    rules = tmp_path / "steadfast-rules.yaml"
    rules.write_text(rules.read_text(encoding="utf-8").replace("2m", "3m"), encoding="utf-8")
    monkeypatch.setattr(generate.stale, "__defaults__", (tmp_path,))
    assert command.main(["check"]) == 1
    said = capsys.readouterr().err
    assert "steadfast-rules.yaml is not what the code says" in said
    assert "steadfast-dashboard.json" not in said
    assert "python -m dashboards generate" in said


def test_generate_writes_only_what_differs(tmp_path):
    assert {path.name for path in generate.write(tmp_path)} == set(generate.contents())
    assert generate.write(tmp_path) == []


def test_the_files_fit_one_config_map():
    assert sum(len(text.encode()) for text in generate.contents().values()) < CONFIG_MAP_LIMIT / 4


def test_grafanas_schema_knows_every_key():
    """A key that the typed model does not have is lost on the way through it, and shows as a difference."""
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(DOCUMENT), cls=JSONEncoder))
    assert again == DOCUMENT


def test_a_misspelled_key_would_be_found():
    register_default_plugins()
    wrong = json.loads(json.dumps(DOCUMENT))
    wrong["panels"][0]["fieldConfig"]["defaults"]["unitt"] = "short"
    assert json.loads(json.dumps(Dashboard.from_json(wrong), cls=JSONEncoder)) != wrong


def test_it_is_a_classic_dashboard_with_a_stable_address():
    assert DOCUMENT["schemaVersion"] >= 36
    assert "spec" not in DOCUMENT
    assert DOCUMENT["uid"] == "steadfast-launch-safety"
    assert "id" not in DOCUMENT or DOCUMENT["id"] is None


def test_at_most_fourteen_panels():
    assert len(DOCUMENT["panels"]) <= 14
    assert len({panel["id"] for panel in DOCUMENT["panels"]}) == len(DOCUMENT["panels"])


def test_panels_fill_the_grid_without_overlap():
    cells = [
        (x, y)
        for panel in DOCUMENT["panels"]
        for x, y in itertools.product(
            range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"]),
            range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"]),
        )
    ]
    assert len(cells) == len(set(cells))
    assert set(cells) == set(itertools.product(range(24), range(max(y for _, y in cells) + 1)))


@pytest.mark.parametrize("name", generate.contents())
def test_the_text_loads_as_what_it_claims_to_be(name):
    text = (generate.GENERATED / name).read_text(encoding="utf-8")
    loaded = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    assert set(loaded) >= ({"panels", "templating"} if name.endswith(".json") else {"groups"})
