# SPDX-License-Identifier: Apache-2.0
"""The dashboard around the panels: variables, marks, links, and its Classic JSON.

Classic (v1) because Grafana 13 refuses the v2 schema through file provisioning, which is how a labelled
ConfigMap reaches it.
"""

from __future__ import annotations

import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.panels import all_panels
from dashboards.queries import SCOPE
from dashboards.rules import BURN_ALERT
from dashboards.selectors import Scope
from dashboards.style import DATASOURCE, ORANGE

UID = "steadfast-launch-safety"
TITLE = "Steadfast: launch safety and reattach"
TAG = "steadfast-mixin"

_EVERYTHING = VariableOption(selected=True, text=["All"], value=["$__all"])
_VERSIONS = "version, airflow, provider"


def build() -> dict[str, Any]:
    """Return the dashboard as Grafana's Classic JSON, as plain dictionaries; the same on every call."""
    builder = (
        sdk.Dashboard(TITLE)
        .uid(UID)
        .description("Are stale launches dropped, why, since when; do retried pods find their task again.")
        .tags([TAG, "airflow"])
        .readonly()
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(_datasource())
        .with_variable(_targets("job", "Job", Scope().series("build_info")))
        .with_variable(_targets("instance", "Scheduler", Scope(('job=~"$job"',)).series("build_info")))
        .annotation(_versions())
        .annotation(_alerts())
        .link(
            sdk.DashboardLink("Airflow dashboards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["airflow"])
            .as_dropdown(as_dropdown=True)
            .keep_time(keep_time=True)
        )
    )
    for number, panel in enumerate(all_panels(), start=1):
        builder = builder.with_panel(panel.id(number))
    document: dict[str, Any] = json.loads(json.dumps(builder.build(), cls=JSONEncoder))
    return document


def dashboard_json() -> str:
    """Return the dashboard as text; the same bytes on every call."""
    return json.dumps(build(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _datasource() -> sdk.DatasourceVariable:
    return sdk.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _targets(label: str, title: str, selector: str) -> sdk.QueryVariable:
    query = f"label_values({selector}, {label})"
    return (
        sdk.QueryVariable(label)
        .label(title)
        .datasource(DATASOURCE)
        .query(query)
        .definition(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .current(_EVERYTHING)
    )


def _versions() -> sdk.AnnotationQuery:
    now = SCOPE.series("build_info")
    return (
        sdk.AnnotationQuery()
        .name("Version changes")
        .datasource(DATASOURCE)
        .enable(enable=True)
        .icon_color("blue")
        .expr(f"count by ({_VERSIONS}) ({now}) unless count by ({_VERSIONS}) ({now} offset 5m)")
        .step("1m")
        .title_format("New version")
        .text_format("Steadfast {{version}}, Airflow {{airflow}}, provider {{provider}}")
    )


def _alerts() -> sdk.AnnotationQuery:
    return (
        sdk.AnnotationQuery()
        .name("Burn alert")
        .datasource(DATASOURCE)
        .enable(enable=True)
        .icon_color(ORANGE)
        .expr(f'max by (severity) (ALERTS{{alertname="{BURN_ALERT}",alertstate="firing",job=~"$job"}})')
        .step("1m")
        .title_format(f"{BURN_ALERT} firing")
        .text_format("{{severity}}")
    )
