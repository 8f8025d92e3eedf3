# SPDX-License-Identifier: Apache-2.0
"""Every metric of the project, once.

The scheduler's totals, the sidecar's exposition, the dashboards, the alert rules and
``docs/metrics.md`` are all made from this table, so a name or a label value cannot drift.

Rules (prometheus.io, "Metric and label naming"): base units, ``_total`` on counters only, label
values form a small closed set, and no Dag, task, run or pod is ever a label: those belong in the
log line and the audit log.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind = Literal["counter", "gauge", "histogram"]
Source = Literal["handoff", "outbox", "sidecar"]

OTHER = "other"
"""What a label value outside its closed set becomes."""

DURATION_BUCKETS: tuple[float, ...] = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.0,
    5.0,
)
"""Upper bounds in seconds, without ``+Inf``: one primary-key look-up up to a check past its timeout."""

DROP_REASONS = (
    "task_instance_missing",
    "state_changed",
    "try_superseded",
    "owner_changed",
    "superseded",
    "token_expired",
    OTHER,
)
CHECK_ERROR_REASONS = (
    "database_error",
    "timeout",
    "import_error",
    "job_id_not_numeric",
    "unsupported_workload",
    "internal_error",
    OTHER,
)
FALLBACK_REASONS = (
    "no_record",
    "pod_gone",
    "uid_mismatch",
    "terminating",
    "malformed",
    "store_unavailable",
    OTHER,
)
COMPONENTS = ("launch_guard", "durable_pod")
MODES = ("enforce", "observe", "durable", "reattach_on_restart", "off", OTHER)
"""In which a component works; one that the installed Airflow leaves no room for is 0 in each."""
SOURCES = ("handoff", "outbox")


@dataclass(frozen=True)
class Metric:
    """One metric family.

    ``labels`` maps a label's name to its closed set of values; an empty set means free text, which
    only ``steadfast_build_info`` has. ``source`` is where its value comes from: the scheduler's
    hand-off file, the workers' outbox rows, or the sidecar itself. ``stability`` is "stable"
    (renamed or removed only in a major version) or "experimental".
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: Source = "handoff"
    stability: Literal["stable", "experimental"] = "stable"
    buckets: tuple[float, ...] = ()
    combinations: tuple[tuple[str, ...], ...] = ()
    """The values, in the order of ``labels``, that go together; empty where all do."""

    def series(self) -> Iterator[dict[str, str]]:
        """Yield the labels of each series of this family; nothing for one with a free-text label."""
        for values in self.combinations or itertools.product(*self.labels.values()):
            yield dict(zip(self.labels, values, strict=True))

    def normalise(self, labels: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Bring labels into the catalogue's order and closed sets.

        A value outside its set, or a label not given, becomes ``other`` (the last value of a set
        without one); a label that the metric does not have is left out. Returns the labels and the
        names of those that did not fit. Never raises.
        """
        fitted: dict[str, str] = {}
        misfits = [name for name in labels if name not in self.labels]
        for name, allowed in self.labels.items():
            value = str(labels.get(name, ""))
            if allowed and value not in allowed:
                misfits.append(name)
                value = OTHER if OTHER in allowed else allowed[-1]
            fitted[name] = value
        return fitted, tuple(misfits)


def _counter(
    name: str,
    description: str,
    labels: Mapping[str, tuple[str, ...]] | None = None,
    source: Source = "handoff",
) -> Metric:
    return Metric(f"steadfast_{name}_total", "counter", description, "events", labels or {}, source)


METRICS: tuple[Metric, ...] = (
    _counter(
        "launches_decided",
        "Launches decided, once each: first handed to pod creation, or dropped. The denominator of ratios.",
    ),
    _counter(
        "workloads_dropped",
        "Queued workloads for which no worker pod was launched because the work had moved on, by reason.",
        {"reason": DROP_REASONS},
    ),
    _counter(
        "workloads_would_drop",
        "Queued workloads that enforce mode would have dropped, counted in observe mode, by reason.",
        {"reason": DROP_REASONS},
    ),
    _counter(
        "launch_checks",
        "Queued workloads checked against the database, each time anew: the cost, not a denominator.",
    ),
    _counter(
        "launch_check_errors",
        "Launch checks that gave no verdict, by reason. Such a workload is held or launched, never lost.",
        {"reason": CHECK_ERROR_REASONS},
    ),
    Metric(
        "steadfast_launch_check_duration_seconds",
        "histogram",
        "Duration of one batched launch check, its connection included.",
        "seconds",
        buckets=DURATION_BUCKETS,
    ),
    Metric(
        "steadfast_launches_held",
        "gauge",
        "Launches held back now because the database does not answer.",
        "launches",
    ),
    Metric(
        "steadfast_stranded_task_instances",
        "gauge",
        "Task instances dropped for another owner that are still queued and that no living scheduler owns.",
        "task instances",
        stability="experimental",
    ),
    _counter(
        "launches_failed_open",
        "Launches made without a verdict because holding them longer would have stopped tasks.",
    ),
    _counter(
        "pods_revoked",
        "Pending worker pods deleted by the check after creation because their launch went stale.",
    ),
    _counter(
        "pods_adopted",
        "Worker pods adopted after a lost create reply instead of a second pod.",
    ),
    _counter(
        "worker_pods_unpatched",
        "Worker pods launched without the patch: their template lacks it and it could not be added.",
    ),
    _counter(
        "reattach_attempts",
        "Tries that looked for a pod of an earlier try of theirs. The denominator of the next two.",
        source="outbox",
    ),
    _counter(
        "reattach_identity_hits",
        "Tries that found their pod by its stored identity, uid compared.",
        source="outbox",
    ),
    _counter(
        "reattach_label_fallbacks",
        "Tries that had to search by label because the stored identity did not help, by reason.",
        {"reason": FALLBACK_REASONS},
        source="outbox",
    ),
    _counter(
        "pods_harvested",
        "Pods that finished while nobody watched and whose result was taken instead of a second run.",
        source="outbox",
    ),
    _counter(
        "record_errors",
        "Reads or writes of the stored pod identity that failed. A lower bound while the store is down.",
        source="outbox",
    ),
    _counter(
        "settings_errors",
        "Wrong or contradictory [steadfast] settings whose default the scheduler uses; workers log theirs.",
    ),
    _counter(
        "handoff_write_errors",
        "Writes of the hand-off file that failed; the totals waited in memory.",
    ),
    Metric(
        "steadfast_patch_active",
        "gauge",
        "1 where the component works in this mode in the process that wrote the hand-off file, else 0.",
        "boolean",
        {"component": COMPONENTS, "mode": MODES},
        combinations=(
            *(("launch_guard", mode) for mode in ("enforce", "observe", "off", OTHER)),
            *(("durable_pod", mode) for mode in ("durable", "reattach_on_restart", "off", OTHER)),
        ),
    ),
    Metric(
        "steadfast_build_info",
        "gauge",
        "Always 1; versions of the sidecar and of the scheduler that wrote the hand-off file.",
        "boolean",
        {"version": (), "python": (), "airflow": (), "provider": ()},
        source="sidecar",
    ),
    Metric(
        "steadfast_source_up",
        "gauge",
        "1 if the sidecar's last read of the source succeeded, else 0; the sidecar's log has the reason.",
        "boolean",
        {"source": SOURCES},
        source="sidecar",
    ),
    Metric(
        "steadfast_source_last_success_timestamp_seconds",
        "gauge",
        "Unix time of the last good read of the source, 0 before the first.",
        "seconds",
        {"source": SOURCES},
        source="sidecar",
    ),
    Metric(
        "steadfast_outbox_pending",
        "gauge",
        "Outbox rows seen at the last read and not yet counted by any sidecar.",
        "rows",
        source="sidecar",
    ),
    Metric(
        "steadfast_handoff_mtime_seconds",
        "gauge",
        "Unix time of the hand-off file's last write, 0 while there is none.",
        "seconds",
        source="sidecar",
    ),
    _counter(
        "collector_errors",
        "Reads of a source by the sidecar that failed, and entries it could not understand.",
        {"source": SOURCES},
        source="sidecar",
    ),
)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
