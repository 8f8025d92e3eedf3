# SPDX-License-Identifier: Apache-2.0
"""The preview's page: header, the grid of panels as the dashboard lays them out, and its tiles."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from dashboards.preview import fields, plotting
from dashboards.preview.plotting import FAINT, TEXT

if TYPE_CHECKING:
    from pathlib import Path

    from dashboards.preview.answers import Answered
    from dashboards.prometheus import Series, Window

COLUMNS = 24
INCHES_PER_COLUMN, INCHES_PER_ROW, HEADER_INCHES, MARGIN = 0.66, 0.37, 0.62, 0.07
PAGE, CARD = "#111217", "#181b1f"
WIDE = 12


def draw(
    output: Path,
    title: str,
    origin: str,
    panels: list[Answered],
    marks: dict[str, list[Series]],
    window: Window,
) -> None:
    """Draw the page to ``output`` (PNG, written atomically); the same answers give the same picture."""
    rows = max(entry.panel["gridPos"]["y"] + entry.panel["gridPos"]["h"] for entry in panels)
    width, height = COLUMNS * INCHES_PER_COLUMN, rows * INCHES_PER_ROW + HEADER_INCHES
    figure = Figure(figsize=(width, height), dpi=110, facecolor=PAGE)
    canvas = FigureCanvasAgg(figure)
    _header(figure, title, origin, window)
    for entry in panels:
        box = _box(entry.panel["gridPos"], height)
        _card(figure, box, entry.panel["title"])
        if entry.panel["type"] == "stat":
            _tiles(figure, box, entry, window)
        else:
            _graph(figure, box, entry, marks, window)
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_suffix(".part")
    canvas.print_png(part, metadata={"Software": None})
    part.replace(output)


def _header(figure: Figure, title: str, origin: str, window: Window) -> None:
    first, last = (datetime.fromtimestamp(moment, tz=timezone.utc) for moment in (window.start, window.end))
    upper, lower = (1 - part * HEADER_INCHES / figure.get_figheight() for part in (0.32, 0.76))
    span = f"{first:%Y-%m-%d %H:%M} to {last:%H:%M} UTC"
    note = f"Preview, drawn by `python -m dashboards preview` from {origin}: no screenshot of Grafana"
    key = "red: burn alert firing   blue: version change"
    figure.text(0.008, upper, title, color=TEXT, fontsize=15, va="center")
    figure.text(0.992, upper, span, color=TEXT, fontsize=10, ha="right", va="center")
    figure.text(0.008, lower, note, color=FAINT, fontsize=8, va="center")
    figure.text(0.992, lower, key, color=FAINT, fontsize=8, ha="right", va="center")


Box = tuple[float, float, float, float]
"""Left, bottom, width and height in inches."""


def _box(grid: dict[str, int], height: float) -> Box:
    left, top = grid["x"] * INCHES_PER_COLUMN + MARGIN, HEADER_INCHES + grid["y"] * INCHES_PER_ROW
    tall = grid["h"] * INCHES_PER_ROW - MARGIN
    return left, height - top - tall, grid["w"] * INCHES_PER_COLUMN - 2 * MARGIN, tall


def _part(figure: Figure, box: Box) -> tuple[float, float, float, float]:
    """Return a box as fractions of the figure, which is what matplotlib places by."""
    width, height = figure.get_size_inches()
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _card(figure: Figure, box: Box, title: str) -> None:
    left, bottom, width, height = _part(figure, box)
    figure.add_artist(
        FancyBboxPatch(
            (left, bottom),
            width,
            height,
            boxstyle="square,pad=0",
            facecolor=CARD,
            edgecolor="#25282d",
            zorder=-2,
        )
    )
    figure.text(
        left + 0.005, bottom + height - 0.014, title, color=TEXT, fontsize=9, weight="bold", va="center"
    )


def _tiles(figure: Figure, box: Box, entry: Answered, window: Window) -> None:
    tiles = [
        (series.named(legend), series.points[-1][1], fields.effective(entry.panel, reference, legend))
        for reference, legend, found in entry.results
        for series in found
    ]
    named = len(tiles) > 1
    if not tiles:
        tiles = [("", float("nan"), entry.panel["fieldConfig"]["defaults"])]
    across = min(len(tiles), 2)  # four tiles lie two by two
    down = -(-len(tiles) // across)
    left, bottom, width, height = box
    height -= 0.34
    for index, (name, value, options) in enumerate(tiles):
        column, row = index % across, index // across
        place = (
            left + 0.06 + column * (width - 0.06) / across,
            bottom + 0.06 + (down - 1 - row) * (height - 0.02) / down,
            (width - 0.06) / across - 0.06,
            (height - 0.02) / down - 0.06,
        )
        _tile(figure, place, name if named else "", value, options, window)


def _tile(figure: Figure, box: Box, name: str, value: float, options: dict[str, Any], window: Window) -> None:
    text, color = fields.shown(value, options, window.end)
    if text == "-":
        text, color = options.get("noValue", "no data"), fields.UNKNOWN
    axes = figure.add_axes(_part(figure, box), facecolor=color)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    size = min(22.0, box[2] * 105 / max(len(text), 1), box[3] * 30)
    axes.text(
        0.5,
        0.42 if name else 0.5,
        text,
        color="white",
        fontsize=size,
        weight="bold",
        ha="center",
        va="center",
    )
    if name:
        axes.text(0.5, 0.84, name, color="white", fontsize=7.5, ha="center", va="center")


def _graph(figure: Figure, box: Box, entry: Answered, marks: dict[str, list[Series]], window: Window) -> None:
    left, bottom, width, height = box
    table = 0.78
    has_right_axis = bool(entry.panel["fieldConfig"]["overrides"])
    place = (
        left + 0.62,
        bottom + table + 0.22,
        width - (1.1 if has_right_axis else 0.75),
        height - table - 0.56,
    )
    axes = figure.add_axes(_part(figure, place))
    lines = plotting.plot(axes, entry, window, marks)
    place = (left + 0.1, bottom + 0.02, width - 0.15, table)
    wide = entry.panel["gridPos"]["w"] >= WIDE or len(lines) > plotting.ROWS_SHOWN // 2
    plotting.legend(figure.add_axes(_part(figure, place)), lines, columns=2 if wide else 1)
