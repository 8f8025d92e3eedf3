# SPDX-License-Identifier: Apache-2.0
"""One graph of the preview: lines, stacks or bars over time, limits, marks, and the legend underneath."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dashboards.preview import fields

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dashboards.preview.answers import Answered
    from dashboards.prometheus import Series, Window

PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#b877d9", "#5ad8c9", "#ff9fb2", "#a0a7b4")
TEXT, FAINT, GRID = "#d8d9da", "#8e949e", "#2c3036"
COUNTS = ("short", "cpm")
SECONDS_PER_DAY = 86400
ROWS_SHOWN = 8
"""Legend entries drawn; Grafana scrolls instead."""


@dataclass(frozen=True)
class Line:
    """One series as drawn: ``values`` has one entry per step, NaN where there is no sample."""

    name: str
    values: list[float]
    options: dict[str, Any]
    color: str

    @property
    def on_right(self) -> bool:
        """Whether it has an own axis."""
        return bool(self.options["custom"].get("axisPlacement") == "right")


def plot(axes: Axes, answered: Answered, window: Window, marks: dict[str, list[Series]]) -> list[Line]:
    """Draw the panel's series into ``axes``; return them for the legend."""
    steps = [
        window.start + index * window.step
        for index in range(int((window.end - window.start) // window.step) + 1)
    ]
    times = [_day(step) for step in steps]
    lines = _lines(answered, steps)
    _frame(axes, answered.panel, times)
    left = [line for line in lines if not line.on_right]
    right = [line for line in lines if line.on_right]
    _draw(axes, times, left, answered.panel, window)
    defaults = answered.panel["fieldConfig"]["defaults"]
    _scale(axes, left, defaults["unit"], defaults)
    if right:
        twin = axes.twinx()
        twin.tick_params(colors=FAINT, labelsize=7, length=0)
        twin.spines[:].set_visible(False)
        for line in right:
            twin.plot(times, line.values, color=line.color, linewidth=1.3, linestyle=(0, (4, 2)))
        _scale(twin, right, right[0].options["unit"], {})
        twin.set_ylabel(right[0].options["custom"].get("axisLabel", ""), color=FAINT, fontsize=7)
    _limits(axes, defaults)
    _marks(axes, marks, window)
    if not lines:
        axes.text(
            0.5, 0.5, defaults.get("noValue", "no data"), color=FAINT, ha="center", transform=axes.transAxes
        )
    return lines


def _lines(answered: Answered, steps: list[float]) -> list[Line]:
    lines: list[Line] = []
    for reference, legend, found in answered.results:
        for series in found:
            name = series.named(legend)
            samples = {round(moment): value for moment, value in series.points}
            values = [samples.get(round(step), math.nan) for step in steps]
            options = fields.effective(answered.panel, reference, name)
            lines.append(Line(name, values, options, PALETTE[len(lines) % len(PALETTE)]))
    return lines


def _frame(axes: Axes, panel: dict[str, Any], times: list[float]) -> None:
    axes.set_facecolor("none")
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=FAINT, labelsize=7, length=0)
    axes.set_xlim(times[0], times[-1])
    locator = AutoDateLocator(minticks=4, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    label = panel["fieldConfig"]["defaults"].get("custom", {}).get("axisLabel", "")
    axes.set_ylabel(label, color=FAINT, fontsize=7)


def _draw(axes: Axes, times: list[float], lines: list[Line], panel: dict[str, Any], window: Window) -> None:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    base = [0.0] * len(times)
    for line in lines:
        heights = [0.0 if math.isnan(value) else value for value in line.values]
        if custom.get("drawStyle") == "bars":
            width = _day(window.step)
            axes.bar(times, heights, width, bottom=base, color=line.color, linewidth=0, align="center")
        elif is_stacked:
            top = [low + height for low, height in zip(base, heights, strict=True)]
            axes.fill_between(times, base, top, color=line.color, alpha=0.7, linewidth=0, step="post")
        else:
            axes.plot(times, line.values, color=line.color, linewidth=1.4)
            axes.fill_between(times, 0, line.values, color=line.color, alpha=0.08, linewidth=0)
        if is_stacked:
            base = [low + height for low, height in zip(base, heights, strict=True)]
    if is_stacked:
        axes.set_ylim(0, max([*base, 1]) * 1.1)


def _scale(axes: Axes, lines: list[Line], unit: str, defaults: dict[str, Any]) -> None:
    values = [value for line in lines for value in line.values if not math.isnan(value)]
    top = max(value * 1.1 for value in values) if values else 1
    if unit in COUNTS:
        top = max(top, 1)  # all zeros must not look like small fractions
    top = max(top, axes.get_ylim()[1] if defaults.get("custom", {}).get("stacking") else 0)
    axes.set_ylim(0, min(top, defaults.get("max", top)))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=unit == "short"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: fields.text(value, unit)))


def _limits(axes: Axes, defaults: dict[str, Any]) -> None:
    if defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode") != "dashed":
        return
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is not None and step["value"] <= axes.get_ylim()[1]:
            axes.axhline(step["value"], color=fields.color(step["color"]), linewidth=1, linestyle=(0, (5, 3)))


def _marks(axes: Axes, marks: dict[str, list[Series]], window: Window) -> None:
    for series in marks.get("Version changes", []):
        first = series.points[0][0]
        if first > window.start + window.step:
            axes.axvline(_day(first), color=fields.COLORS["blue"], linewidth=1, linestyle=(0, (3, 3)))
    for series in marks.get("Burn alert", []):
        begin = previous = series.points[0][0]
        for moment, _ in [*series.points[1:], (math.inf, 0.0)]:
            if moment > previous + 2 * window.step:
                axes.axvspan(_day(begin), _day(previous), color=fields.COLORS["red"], alpha=0.10, linewidth=0)
                begin = moment
            previous = moment


def _day(seconds: float) -> float:
    """Return Unix seconds as matplotlib counts time: days since 1970, UTC."""
    return seconds / SECONDS_PER_DAY


def legend(axes: Axes, lines: list[Line], *, columns: int) -> None:
    """Write the legend as a table: name, newest value, highest value."""
    axes.axis("off")
    axes.set_xlim(0, 1)
    rows = math.ceil(ROWS_SHOWN / 2)
    axes.set_ylim(rows + 1, 0)
    width = 1 / columns
    shown = lines[: rows * columns]
    for column in range(min(columns, math.ceil(len(shown) / rows)) if shown else 0):
        left = column * width
        for x, head in ((0.68, "last"), (0.92, "max")):
            axes.text(left + x * width, 0.5, head, color=FAINT, fontsize=6.5, ha="right", va="center")
    for index, line in enumerate(shown):
        left, row = (index // rows) * width, index % rows + 1.5
        axes.plot([left + 0.005, left + 0.03 * width + 0.005], [row, row], color=line.color, linewidth=3)
        axes.text(left + 0.06 * width, row, line.name, color=TEXT, fontsize=7, va="center")
        values = [value for value in line.values if not math.isnan(value)]
        unit = line.options["unit"]
        for x, value in ((0.68, line.values[-1]), (0.92, max(values, default=math.nan))):
            axes.text(
                left + x * width,
                row,
                fields.text(value, unit),
                color=TEXT,
                fontsize=7,
                ha="right",
                va="center",
            )
