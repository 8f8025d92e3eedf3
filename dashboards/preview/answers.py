# SPDX-License-Identifier: Apache-2.0
"""What Prometheus answers to the queries of a panel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dashboards.prometheus import Client, Series, Window


@dataclass(frozen=True)
class Answered:
    """A panel with what Prometheus answered: per query its reference, legend and series."""

    panel: dict[str, Any]
    results: list[tuple[str, str, list[Series]]]


def ask(client: Client, panel: dict[str, Any], window: Window) -> Answered:
    """Ask every query of a panel: tiles at the end of the window, graphs over all of it."""
    return Answered(
        panel,
        [
            (
                target["refId"],
                target["legendFormat"],
                (client.instant if target.get("instant") else client.range)(target["expr"], window),
            )
            for target in panel["targets"]
        ],
    )
