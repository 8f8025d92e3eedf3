# SPDX-License-Identifier: Apache-2.0
"""How Grafana would show a value: the effective options of a series, its text and its colour."""

from __future__ import annotations

import math
import re
from typing import Any

COLORS = {
    "green": "#4c9a4e",
    "yellow": "#d6a60d",
    "orange": "#e0752d",
    "red": "#d44a3a",
    "blue": "#5794f2",
}
UNKNOWN = "#5a5f6b"
MINUTE, HOUR = 60, 3600


def effective(panel: dict[str, Any], reference: str, name: str) -> dict[str, Any]:
    """Return the field options of one series: the panel's defaults with the overrides that match it."""
    config = panel["fieldConfig"]
    options = {**config["defaults"], "custom": dict(config["defaults"].get("custom", {}))}
    for override in config.get("overrides", []):
        matcher = override["matcher"]
        wanted = str(matcher["options"])
        matches = {
            "byFrameRefID": wanted == reference,
            "byName": wanted == name,
            "byRegexp": re.search(wanted.strip("/"), name) is not None,
        }
        if matches[matcher["id"]]:
            for option in override["properties"]:
                home = options["custom"] if option["id"].startswith("custom.") else options
                home[option["id"].removeprefix("custom.")] = option["value"]
    return options


def shown(value: float, options: dict[str, Any], now: float) -> tuple[str, str]:
    """Return the text and the colour of one value; ``now`` in Unix seconds is the end of the range."""
    for mapping in options.get("mappings", []):
        if mapping["type"] == "special" and math.isnan(value):
            result = mapping["options"]["result"]
            return result["text"], color(result["color"])
        if mapping["type"] == "value" and (result := mapping["options"].get(f"{value:g}")):
            return result["text"], color(result["color"])
    return text(value, options["unit"], now), color(_step(value, options))


def _step(value: float, options: dict[str, Any]) -> str:
    chosen = "green"
    for step in options["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            chosen = step["color"]
    return chosen


def color(name: str) -> str:
    """Return the hexadecimal form of one of Grafana's colour names."""
    return COLORS.get(name, name)


def text(value: float, unit: str, now: float = 0) -> str:
    """Write a value in its unit (Grafana's ids: short, percentunit, cpm, s, dateTimeFromNow)."""
    if math.isnan(value):
        return "-"
    if unit == "percentunit":
        return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"  # noqa: PLR2004  # a second digit below 10 %
    if unit == "dateTimeFromNow":
        return f"{_duration(max(now - value / 1000, 0), long=True)} ago"
    if unit == "s":
        return _duration(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value / 1000:.3g} k"  # noqa: PLR2004  # SI prefix


def _duration(seconds: float, *, long: bool = False) -> str:
    if long:
        hours, minutes = divmod(round(seconds / MINUTE), 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 2 * MINUTE:
        return f"{seconds:.3g} s"
    return f"{seconds / MINUTE:.3g} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.3g} h"
