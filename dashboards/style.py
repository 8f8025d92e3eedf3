# SPDX-License-Identifier: Apache-2.0
"""How panels and their parts look: thin makers over the Grafana SDK, one per kind of part.

Colours carry meaning: green is as wished, yellow and orange ask for a look (a drop is the guard at work),
red means that a number cannot be trusted or the native behaviour took over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    DynamicConfigValue,
    FieldColorModeId,
    GridPos,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

GREEN, YELLOW, ORANGE, RED, GREY = "green", "yellow", "orange", "red", "#5a5f6b"
DATASOURCE = shapes.DataSourceRef(type_val="prometheus", uid="${datasource}")
PER_MINUTE = "cpm"

Steps: TypeAlias = tuple[tuple[float | None, str], ...]
Mappings: TypeAlias = list[ValueMap | SpecialValueMap]


@dataclass(frozen=True)
class Query:
    """One query: its expression and the name of each series (``{{label}}`` is filled in by Grafana)."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Place:
    """Where a panel lies on the grid, 24 columns wide."""

    x: int
    y: int
    width: int
    height: int

    @property
    def grid(self) -> GridPos:
        """The same as the SDK's shape."""
        return GridPos(h=self.height, w=self.width, x=self.x, y=self.y)


def stat_panel(
    title: str, description: str, place: Place, queries: tuple[Query, ...], *, unit: str, steps: Steps
) -> stat.Panel:
    """Make a row of tiles, one per series, that shows the newest value of each query."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .grid_pos(place.grid)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(thresholds(steps))
        .color_mode(shapes.BigValueColorMode.BACKGROUND_SOLID)
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .text_mode(
            shapes.BigValueTextMode.VALUE_AND_NAME if len(queries) > 1 else shapes.BigValueTextMode.VALUE
        )
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    for index, query in enumerate(queries):
        panel = panel.with_target(_target(index, query).instant())
    return panel


def graph_panel(
    title: str, description: str, place: Place, queries: tuple[Query, ...], *, unit: str
) -> timeseries.Panel:
    """Make a graph over time with its legend, newest and highest value of each line, underneath."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .grid_pos(place.grid)
        .datasource(DATASOURCE)
        .color_scheme(FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .unit(unit)
        .min(0)
        .line_width(2)
        .fill_opacity(10)
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(shapes.LegendDisplayMode.TABLE)
            .placement(shapes.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
    )
    for index, query in enumerate(queries):
        panel = panel.with_target(_target(index, query).range())
    return panel


def _target(index: int, query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id(chr(ord("A") + index))
        .datasource(DATASOURCE)
        .expr(query.expr)
        .legend_format(query.legend)
    )


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    """Lay the series on top of each other, filled: their sum is what counts."""
    return panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A")).fill_opacity(
        60
    )


def bars(panel: timeseries.Panel) -> timeseries.Panel:
    """Draw bars: a gap means that nothing happened, and no line is drawn across it."""
    return panel.draw_style(shapes.GraphDrawStyle.BARS).line_width(0).fill_opacity(85)


def limit_lines(panel: timeseries.Panel, steps: Steps) -> timeseries.Panel:
    """Draw a dashed line at each step."""
    return panel.thresholds(thresholds(steps)).thresholds_style(
        common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
    )


def thresholds(steps: Steps) -> ThresholdsConfig:
    """Make the colour steps: (from this value, colour), the first from ``None``, that is from below."""
    return (
        ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value, color) for value, color in steps])
    )


def on_right_axis(unit: str, label: str) -> list[DynamicConfigValue]:
    """Properties that move a line to an own axis on the right."""
    return [
        DynamicConfigValue("custom.axisPlacement", "right"),
        DynamicConfigValue("custom.axisLabel", label),
        DynamicConfigValue("custom.fillOpacity", 0),
        DynamicConfigValue("unit", unit),
    ]


def words(table: dict[str, tuple[str, str]]) -> ValueMap:
    """Show a value as a word: value -> (word, colour)."""
    return ValueMap(
        {
            value: ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(table.items())
        }
    )


def undefined(text: str) -> SpecialValueMap:
    """Show 0/0 (nothing happened, so no share) as a grey word."""
    return SpecialValueMap(
        DashboardSpecialValueMapOptions(
            match=SpecialValueMatch.NULL_AND_NAN, result=ValueMappingResult(text=text, color=GREY)
        )
    )
