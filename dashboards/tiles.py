# SPDX-License-Identifier: Apache-2.0
"""The top row of the dashboard: the questions a person has first.

Are we dropping, how much, since when, does the alert agree, do pods find their task again, and can these
numbers be trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.models.dashboard import DynamicConfigValue

from dashboards import queries, style
from dashboards.rules import BURN_ALERT, BURNS
from dashboards.selectors import DECIDED, DROPPED, ENFORCING_MODES
from dashboards.style import GREEN, GREY, ORANGE, RED, YELLOW, Place, Query

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import stat

PAUSE = "15m"
"""Drops further apart than this are two bursts; as long as the burn alert outlasts a pause."""


def burn_limits() -> style.Steps:
    """Colour steps at the slowest and the fastest limit of the burn alert."""
    slowest, fastest = BURNS[-1].threshold, BURNS[0].threshold
    return ((None, GREEN), (round(slowest, 6), YELLOW), (round(fastest, 6), ORANGE))


def dropped() -> stat.Panel:
    """Are we dropping."""
    return style.stat_panel(
        "Stale launches dropped",
        "Queued workloads for which no worker pod was made because the work had moved on, in the selected "
        "time. Each is a pod that would have run for nothing. Above 0: read 'Drops by reason'. 'would "
        "drop' counts in observe mode: switch to enforce once these are all right.",
        Place(0, 0, 4, 4),
        (
            Query(queries.events(DROPPED, queries.RANGE), "dropped"),
            Query(queries.events("workloads_would_drop_total", queries.RANGE), "would drop"),
        ),
        unit="short",
        steps=((None, GREEN), (1, ORANGE)),
    ).decimals(0)


def share() -> stat.Panel:
    """How much of all launches that is."""
    return (
        style.stat_panel(
            "Share dropped, last hour",
            "Dropped launches per launch decided. Yellow from the slowest, orange from the fastest limit of "
            "the burn alert. High: work waits too long in the queue, so look at quotas, API throttling and "
            "pod creation speed.",
            Place(4, 0, 4, 4),
            (Query(queries.share(DROPPED, DECIDED, "1h"), "share dropped"),),
            unit="percentunit",
            steps=((None, GREY), (0, GREEN), *burn_limits()[1:]),
        )
        .mappings([style.undefined("no launches")])
        .no_value("no launches")
    )


def since() -> stat.Panel:
    """Since when, and whether it goes on."""
    dropped_within = queries.SCOPE.increase
    drops = f"(timestamp(sum({dropped_within(DROPPED, queries.RATE)}) > 0))[{queries.RANGE}:1m]"
    quiet = f"(timestamp(sum({dropped_within(DROPPED, PAUSE)}) == 0))[{queries.RANGE}:1m]"
    began = f"(max_over_time({quiet}) or min_over_time({drops}))"
    return style.stat_panel(
        "Dropping since",
        f"When the burst of drops that goes on now began (pauses below {PAUSE} belong to it), and the "
        "latest drop in the selected time, to the minute. Compare the beginning with the version marks and "
        "with deployments, quota changes and cleared runs at that time.",
        Place(8, 0, 5, 4),
        (
            Query(f"{began} * 1000 and on () sum({dropped_within(DROPPED, PAUSE)}) > 0", "this burst began"),
            Query(f"max_over_time({drops}) * 1000", "latest drop"),
        ),
        unit="dateTimeFromNow",
        steps=((None, GREY), (1, ORANGE)),
    ).no_value("none seen")


def alert() -> stat.Panel:
    """What the burn alert says."""
    scraped = queries.SCOPE.series("build_info")
    state = f'ALERTS{{alertname="{BURN_ALERT}",alertstate="%s",job=~"$job"}}'
    return style.stat_panel(
        "Burn alert",
        f"State of {BURN_ALERT} in this Prometheus. Firing: follow docs/runbooks/stale-drop-burn.md. It "
        "reads 'quiet' too where the rules are not loaded: the chart's "
        "steadfast.metrics.prometheusRule.enabled loads them.",
        Place(13, 0, 3, 4),
        (Query(f"max({state % 'firing'} * 2 or {state % 'pending'}) or 0 * max({scraped})", "burn alert"),),
        unit="short",
        steps=((None, GREEN),),
    ).mappings([style.words({"0": ("quiet", GREEN), "1": ("pending", YELLOW), "2": ("FIRING", RED)})])


def identity() -> stat.Panel:
    """Whether retries find their own pod."""
    attempts, hits = "reattach_attempts_total", "reattach_identity_hits_total"
    panel = style.stat_panel(
        "Reattach",
        "Tries that looked for the pod of an earlier try, in the selected time, and the share that found "
        "it by its stored identity. Below 100 %: 'Reattach by outcome' names the reason of each label "
        "search.",
        Place(16, 0, 4, 4),
        (
            Query(queries.events(attempts, queries.RANGE), "attempts"),
            Query(queries.share(hits, attempts, queries.RANGE), "by identity"),
        ),
        unit="short",
        steps=((None, GREEN),),
    )
    return panel.override_by_query(
        "B",
        [
            DynamicConfigValue("unit", "percentunit"),
            DynamicConfigValue("decimals", 0),
            DynamicConfigValue("thresholds", style.thresholds(((None, ORANGE), (0.95, GREEN))).build()),
            DynamicConfigValue("mappings", [style.undefined("none")]),
        ],
    )


def live() -> stat.Panel:
    """Whether the numbers above are to be believed."""
    working = queries.SCOPE.series("patch_active", mode=ENFORCING_MODES)
    observing = queries.SCOPE.series("patch_active", mode="observe")
    panel = style.stat_panel(
        "Are these numbers live?",
        "Sources that the sidecar reads now, and components that work in the scheduler. 'stale': the "
        "sidecar's log has the reason, all counts of that source stand still. 'native': the patch left "
        "Airflow as it is; the scheduler's first log lines that name steadfast say why. Nothing shown: no "
        "sidecar is scraped.",
        Place(20, 0, 4, 4),
        (
            Query(f"min by (source) ({queries.SCOPE.series('source_up')})", "{{source}}"),
            Query(f"max by (component) ({working} * 2 or {observing})", "{{component}}"),
        ),
        unit="short",
        steps=((None, GREEN),),
    )
    component = style.words({"0": ("native", GREY), "1": ("observing", YELLOW), "2": ("active", GREEN)})
    return panel.mappings([style.words({"0": ("stale", RED), "1": ("live", GREEN)})]).override_by_query(
        "B", [DynamicConfigValue("mappings", [component])]
    )
