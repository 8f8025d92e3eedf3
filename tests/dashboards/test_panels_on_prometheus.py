# SPDX-License-Identifier: Apache-2.0
"""Every query of the dashboard, asked of a real Prometheus over six hours of back-filled history."""

from __future__ import annotations

import math

import pytest

from dashboards import dashboard, sample, style
from dashboards.__main__ import main
from dashboards.prometheus import Client, PrometheusError, Window, backfilled
from tests.dashboards.promql import grouping

pytestmark = pytest.mark.promtool

DOCUMENT = dashboard.build()
WINDOW = Window.until(sample.END, sample.MINUTES * 60, sample.SCRAPE)
TARGETS = [
    pytest.param(panel, target, id=f"{panel['title']}: {target['legendFormat']}")
    for panel in DOCUMENT["panels"]
    for target in panel["targets"]
]
PANELS = {panel["title"]: panel for panel in DOCUMENT["panels"]}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def prometheus():
    with backfilled(sample.openmetrics()) as client:
        yield client


@pytest.fixture(scope="module")
def empty():
    with backfilled("# EOF\n") as client:
        yield client


def ask(client, target, window=WINDOW):
    return (client.instant if target.get("instant") else client.range)(target["expr"], window)


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_query_answers(prometheus, panel, target):
    found = ask(prometheus, target)
    assert found
    assert all(series.points for series in found)
    for series in found:
        assert set(series.labels) <= grouping(target["expr"])
        assert series.named(target["legendFormat"])


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_no_infinity_and_no_number_below_zero(prometheus, panel, target):
    values = [
        value for series in ask(prometheus, target) for _, value in series.points if not math.isnan(value)
    ]
    assert values
    assert all(0 <= value < math.inf for value in values)


@pytest.mark.parametrize("title", [title for title, panel in PANELS.items() if panel["type"] == "stat"])
def test_tiles_show_a_number(prometheus, title):
    for target in PANELS[title]["targets"]:
        assert not any(math.isnan(value) for series in ask(prometheus, target) for _, value in series.points)


def values(client, title, index=0, window=WINDOW):
    target = PANELS[title]["targets"][index]
    return {
        series.named(target["legendFormat"]): series.points[-1][1] for series in ask(client, target, window)
    }


def test_the_tiles_tell_the_story(prometheus):
    assert values(prometheus, "Burn alert") == {"burn alert": 2}
    assert values(prometheus, "Are these numbers live?") == {"handoff": 1, "outbox": 1}
    assert values(prometheus, "Are these numbers live?", 1) == {"launch_guard": 2, "durable_pod": 2}
    assert values(prometheus, "Reattach") == {"attempts": 34}
    assert values(prometheus, "Reattach", 1)["by identity"] == pytest.approx(30 / 34, abs=0.01)
    began = values(prometheus, "Dropping since")["this burst began"] / 1000
    assert began == pytest.approx(sample.END - (sample.MINUTES - sample.QUOTA) * 60, abs=120)
    latest = values(prometheus, "Dropping since", 1)["latest drop"] / 1000
    assert latest == pytest.approx(sample.END - (sample.MINUTES - sample.QUOTA_END) * 60, abs=120)


def moment(minute):
    """The three hours before this minute of the sample."""
    return Window.until(sample.END - (sample.MINUTES - minute) * 60, 3 * 3600, sample.SCRAPE)


def test_while_nothing_is_dropped_the_tiles_are_calm(prometheus):
    before = moment(sample.QUOTA - 60)
    assert values(prometheus, "Dropping since", window=before) == {}
    assert values(prometheus, "Burn alert", window=before) == {"burn alert": 0}
    assert values(prometheus, "Share dropped, last hour", window=before) == {"share dropped": 0}


@pytest.mark.parametrize("title", PANELS)
def test_without_a_sidecar_nothing_claims_to_be_calm(title, empty):
    """Absence is not zero: no number may come out of a Prometheus that scrapes nothing of ours."""
    assert not any(ask(empty, target) for target in PANELS[title]["targets"])
    if PANELS[title]["type"] == "stat" and "noValue" in (
        defaults := PANELS[title]["fieldConfig"]["defaults"]
    ):
        assert defaults["thresholds"]["steps"][0]["color"] == style.GREY


def test_a_dead_source_and_observe_mode_are_seen(prometheus):
    silent = moment(sample.SILENCE + 1)
    assert values(prometheus, "Are these numbers live?", window=silent)["outbox"] == 0
    early = moment(sample.UPGRADE - 5)
    assert values(prometheus, "Are these numbers live?", 1, window=early)["launch_guard"] == 1


def test_drops_add_up(prometheus):
    expected = prometheus.instant("sum(steadfast_workloads_dropped_total)", WINDOW)[0].points[0][1]
    assert values(prometheus, "Stale launches dropped")["dropped"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("entry", DOCUMENT["annotations"]["list"], ids=lambda entry: entry["name"])
def test_marks(prometheus, entry):
    found = prometheus.range(entry["expr"], WINDOW)
    assert found
    for label in ("version", "airflow", "provider"):
        if f"{{{{{label}}}}}" in entry["textFormat"]:
            assert all(series.labels[label] for series in found)


def test_the_preview_is_drawn_alike_each_time(prometheus, tmp_path):
    pictures = []
    for name in ("a", "b"):
        picture = tmp_path / f"{name}.png"
        arguments = ["preview", "--prometheus", prometheus.url, "--end", str(sample.END)]
        assert main([*arguments, "--output", str(picture)]) == 0
        pictures.append(picture.read_bytes())
    assert pictures[0].startswith(PNG)
    assert pictures[0] == pictures[1]


def test_the_preview_of_an_empty_prometheus_says_so_instead_of_failing(tmp_path, empty):
    picture = tmp_path / "empty.png"
    assert main(["preview", "--prometheus", empty.url, "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("localhost:9090", "--prometheus localhost:9090: not an http:// or https:// address"),
        ("http://127.0.0.1:9", "No answer from Prometheus at http://127.0.0.1:9"),
    ],
)
def test_a_wrong_address_is_named(tmp_path, capsys, address, complaint):
    assert main(["preview", "--prometheus", address, "--output", str(tmp_path / "x.png")]) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_a_refused_query_is_shown_with_the_reason(prometheus):
    with pytest.raises(PrometheusError, match="parse error"):
        Client(prometheus.url).instant("sum(", WINDOW)


def test_an_unknown_variable_is_refused():
    with pytest.raises(PrometheusError, match=r"Unknown variable in 'up\{x=\"\$pod\"\}'"):
        WINDOW.fill('up{x="$pod"}')
