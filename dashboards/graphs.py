# SPDX-License-Identifier: Apache-2.0
"""The graphs below the top row: why launches are dropped, what it costs, how pods find their task again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards import queries, style
from dashboards.rules import BURNS, MIN_DROPS
from dashboards.selectors import DECIDED, DROPPED
from dashboards.style import GREEN, PER_MINUTE, RED, Place, Query
from dashboards.tiles import burn_limits

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders import timeseries

CHECK_TIMEOUT_SECONDS = 2
"""The guard's own limit for one check, ``[steadfast] guard_check_timeout``; a line in the duration panel."""


def drops_by_reason() -> timeseries.Panel:
    """Why launches are dropped."""
    would = "workloads_would_drop_total"
    panel = style.graph_panel(
        "Drops by reason",
        "state_changed, try_superseded, task_instance_missing: runs were cleared, marked or deleted while "
        "queued. owner_changed: another scheduler took the task over, so look for scheduler restarts. "
        "superseded, token_expired: the queue is slower than [scheduler] task_queued_timeout (a launch "
        "whose token expired is made again with a new one). The audit log names each task.",
        Place(0, 4, 12, 8),
        (
            Query(queries.happened(queries.per_minute(DROPPED, by="reason")), "{{reason}}"),
            Query(queries.happened(queries.per_minute(would, by="reason")), "would drop: {{reason}}"),
        ),
        unit=PER_MINUTE,
    )
    return style.bars(style.stacked(panel)).axis_label("drops per minute").no_value("no drop seen")


def share_over_time() -> timeseries.Panel:
    """How the share moves against the alert's limits."""
    panel = style.graph_panel(
        "Share of launches dropped, against the alert's limits",
        f"Dashed: {BURNS[0].threshold:.1%} (fast burn) and {BURNS[-1].threshold:.0%} (slow burn). The alert "
        f"needs both lines above the upper one for {BURNS[0].wait} and at least {MIN_DROPS} drops. No line: "
        "no launch was decided, which is idle and not 0 %. 5m falling while 1h stays high: it is over.",
        Place(12, 4, 12, 8),
        (
            Query(queries.share(DROPPED, DECIDED, "5m"), "last 5m"),
            Query(queries.share(DROPPED, DECIDED, "1h"), "last 1h"),
        ),
        unit="percentunit",
    )
    return style.limit_lines(panel, burn_limits()).max(1)


def launches() -> timeseries.Panel:
    """How much goes through the guard, and what waits."""
    return style.graph_panel(
        "Launches and what waits",
        "decided: each launch once. checks: database look-ups of one workload; far above decided means "
        "that a quota blocks pods. held: waiting for the database to answer; after [steadfast] "
        "guard_max_hold they start unchecked. stranded: dropped for another owner, still queued, and no "
        "living scheduler has it; lasting: clear those task instances.",
        Place(0, 12, 8, 8),
        (
            Query(queries.per_minute(DECIDED), "decided per minute"),
            Query(queries.per_minute("launch_checks_total"), "checks per minute"),
            Query(f"sum({queries.SCOPE.series('launches_held')})", "held now"),
            Query(f"sum({queries.SCOPE.series('stranded_task_instances')})", "stranded now"),
        ),
        unit="short",
    ).override_by_regexp("/ now$/", style.on_right_axis("short", "task instances"))


def check_duration() -> timeseries.Panel:
    """What the check costs the scheduler's loop."""
    name = "launch_check_duration_seconds"
    buckets = queries.sum_rate(f"{name}_bucket", by="le")
    panel = style.graph_panel(
        "Duration of one batched check",
        "What the guard adds to a scheduler loop that launches something. Above 100 ms: look at the "
        f"metadata database and its pooler. At {CHECK_TIMEOUT_SECONDS} s (red) the check gives up and the "
        "launches are held.",
        Place(8, 12, 8, 8),
        (
            Query(f"histogram_quantile(0.99, {buckets})", "99th percentile"),
            Query(f"histogram_quantile(0.5, {buckets})", "median"),
            Query(f"{queries.sum_rate(f'{name}_sum')} / {queries.sum_rate(f'{name}_count')}", "mean"),
        ),
        unit="s",
    )
    return style.limit_lines(panel, ((None, GREEN), (CHECK_TIMEOUT_SECONDS, RED)))


def fallbacks_to_native() -> timeseries.Panel:
    """Where the patch gave way, which must not stay unseen."""
    return style.graph_panel(
        "Errors and native fall-backs, per hour",
        "Each is survived by design, none should last. failed open: launched unchecked after the database "
        "was silent too long. check: look at that reason in the scheduler's log. record: the task state "
        "store. settings: a wrong [steadfast] key, named in the log. hand-off, read: the volume that "
        "scheduler and sidecar share.",
        Place(16, 12, 8, 8),
        (
            Query(queries.happened(queries.events("launches_failed_open_total", "1h")), "failed open"),
            Query(
                queries.happened(queries.events("launch_check_errors_total", "1h", by="reason")),
                "check: {{reason}}",
            ),
            Query(queries.happened(queries.events("record_errors_total", "1h")), "record"),
            Query(queries.happened(queries.events("settings_errors_total", "1h")), "settings"),
            Query(queries.happened(queries.events("handoff_write_errors_total", "1h")), "hand-off write"),
            Query(
                queries.happened(queries.events("collector_errors_total", "1h", by="source")),
                "read: {{source}}",
            ),
        ),
        unit="short",
    ).no_value("no error seen")


def reattach_by_outcome() -> timeseries.Panel:
    """How retries found their pods."""
    panel = style.graph_panel(
        "Reattach by outcome, per hour",
        "found by identity is the wish. label search: no_record: first try on an older version, or the "
        "record was removed. pod_gone, terminating: something deletes pods, such as a node drain. "
        "uid_mismatch: pods with reused names. store_unavailable: the API server. malformed: a foreign "
        "writer. Searches can find a wrong pod.",
        Place(0, 20, 8, 8),
        (
            Query(queries.events("reattach_identity_hits_total", "1h"), "found by identity"),
            Query(
                queries.happened(queries.events("reattach_label_fallbacks_total", "1h", by="reason")),
                "label search: {{reason}}",
            ),
        ),
        unit="short",
    )
    return style.stacked(panel)


def pods_put_right() -> timeseries.Panel:
    """What the two halves did to pods."""
    return style.graph_panel(
        "Pods put right, per hour",
        "revoked: deleted while pending, since the launch went stale after its creation. adopted: a create "
        "reply was lost, no second pod made; many: look at the API server. harvested: finished while "
        "nobody watched, not run again. unpatched: a custom pod template lacks the patch and it could not "
        "be added; give it the code volume and the PYTHONPATH of the chart's own template.",
        Place(8, 20, 8, 8),
        (
            Query(queries.events("pods_revoked_total", "1h"), "revoked"),
            Query(queries.events("pods_adopted_total", "1h"), "adopted"),
            Query(queries.events("pods_harvested_total", "1h"), "harvested"),
            Query(queries.events("worker_pods_unpatched_total", "1h"), "unpatched"),
        ),
        unit="short",
    )


def data_age() -> timeseries.Panel:
    """How old the numbers are."""
    last_read = queries.SCOPE.series("source_last_success_timestamp_seconds")
    written = queries.SCOPE.series("handoff_mtime_seconds")
    return style.graph_panel(
        "Age of the data",
        "read: since the sidecar last read a source; above a minute that source is stale. hand-off "
        "written: grows while the scheduler has nothing new to tell; growing while launches go on means a "
        "wedged writer. outbox pending: rows not yet counted; a lasting rise means that the sidecar cannot "
        "write its tallies.",
        Place(16, 20, 8, 8),
        (
            Query(f"time() - min by (source) ({last_read} > 0)", "read: {{source}}"),
            Query(f"time() - min({written} > 0)", "hand-off written"),
            Query(f"max({queries.SCOPE.series('outbox_pending')})", "outbox pending"),
        ),
        unit="s",
    ).override_by_name("outbox pending", style.on_right_axis("short", "rows"))
