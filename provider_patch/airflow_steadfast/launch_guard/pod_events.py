# SPDX-License-Identifier: Apache-2.0
"""What is written about a pod that was adopted or revoked: a count, a log line, an audit-log row.

Functions return the pending audit-log rows, which the caller keeps as ``drop.report`` says.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

ADOPTED_EVENT = "steadfast worker pod adopted"
REVOKED_EVENT = "steadfast stale worker pod revoked"


def adopted(executor: Any, entry: Entry, pod: Any) -> list[Any]:
    """Tell of a pod that a create without an answer had made, and that is taken instead of a second one."""
    signals.totals().increment("steadfast_pods_adopted_total")
    log.info("Adopted the worker pod %s, its create had got no answer: %s", pods.describe(pod), entry.launch)
    extra = {"pod_name": pod.metadata.name, "namespace": pod.metadata.namespace, "pod_uid": pods.uid(pod)}
    return _audit(executor, entry, ADOPTED_EVENT, extra)


def revoked(executor: Any, entry: Entry, launch_id: LaunchId, verdict: Verdict) -> list[Any]:
    """Tell of a pending pod that was deleted because its launch had gone stale by the time it was there."""
    signals.totals().increment("steadfast_pods_revoked_total")
    row = verdict.row
    log.info(
        "Revoked a worker pod that had not started, its launch went stale during creation: reason=%s "
        "pod=%s/%s launch=%r %s state=%s row_try_number=%s queued_dttm=%s",
        verdict.reason,
        entry.pod.namespace if entry.pod else None,
        entry.pod.name if entry.pod else None,
        launch_id.text(),
        entry.launch,
        row.state if row else None,
        row.try_number if row else None,
        row.queued_dttm if row else None,
    )
    extra = {"reason": verdict.reason, "launch": launch_id.text()}
    if entry.pod is not None:
        extra |= {"pod_name": entry.pod.name, "namespace": entry.pod.namespace}
    return _audit(executor, entry, REVOKED_EVENT, extra)


def _audit(executor: Any, entry: Entry, event: str, extra: dict[str, Any]) -> list[Any]:
    if entry.launch is None:
        return []
    about = {"task_instance_id": entry.launch.ti_id, "try_number": entry.launch.try_number, **extra}
    executor.log_task_event(event=event, extra=json.dumps(about), ti_key=entry.launch.key)
    pending = getattr(executor, "_task_event_logs", ())
    return [pending[-1]] if pending else []
