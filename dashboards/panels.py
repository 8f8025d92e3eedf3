# SPDX-License-Identifier: Apache-2.0
"""Every panel of "Launch safety and reattach", in reading order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards import graphs, tiles

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import stat, timeseries


def all_panels() -> tuple[stat.Panel | timeseries.Panel, ...]:
    """Return every panel, from the question a person has first to the one asked last."""
    return (
        tiles.dropped(),
        tiles.share(),
        tiles.since(),
        tiles.alert(),
        tiles.identity(),
        tiles.live(),
        graphs.drops_by_reason(),
        graphs.share_over_time(),
        graphs.launches(),
        graphs.check_duration(),
        graphs.fallbacks_to_native(),
        graphs.reattach_by_outcome(),
        graphs.pods_put_right(),
        graphs.data_age(),
    )
