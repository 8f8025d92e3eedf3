# SPDX-License-Identifier: Apache-2.0
"""What a pod object says of itself. Pure: takes the client's ``V1Pod``, asks no server.

Every function accepts a pod whose ``metadata``, ``status`` or any field in them is None, as the
client's models allow, and answers as for an empty one.
"""

from __future__ import annotations

from typing import Any

ANNOTATION_PREFIX = "steadfast/"

LAUNCH_ANNOTATION = ANNOTATION_PREFIX + "launch"
"""Which launch created the pod: compared before a pod of the same name is taken as one's own."""

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


def phase(pod: Any) -> str | None:
    """Return ``status.phase``, or None where the pod has none yet."""
    return getattr(pod.status, "phase", None) if pod.status else None


def is_terminating(pod: Any) -> bool:
    """Return whether someone has asked for the pod's deletion: it may still run, for its grace period."""
    return getattr(pod.metadata, "deletion_timestamp", None) is not None


def is_evicted(pod: Any) -> bool:
    """Return whether the node has thrown the pod out."""
    reason = getattr(pod.status, "reason", None) if pod.status else None
    return isinstance(reason, str) and reason.lower() == "evicted"


def has_failed(pod: Any) -> bool:
    """Return whether the pod ended without success."""
    return phase(pod) == "Failed" or is_evicted(pod)


def has_succeeded(pod: Any) -> bool:
    """Return whether every container of the pod ended with exit code 0."""
    return phase(pod) == "Succeeded"


def uid(pod: Any) -> str | None:
    """Return the server's identity of this very pod, or None for one that no server has seen."""
    value = getattr(pod.metadata, "uid", None)
    return value if isinstance(value, str) and value else None


def label(pod: Any, key: str) -> str | None:
    """Return a label's value; also of a pod that the dynamic client has listed."""
    labels = getattr(pod.metadata, "labels", None)
    try:
        value = labels[key]  # type: ignore[index]  # None is answered below
    except (KeyError, TypeError):
        return None
    return value if isinstance(value, str) else None


def annotation(pod: Any, key: str) -> str | None:
    """Return an annotation's value."""
    annotations = getattr(pod.metadata, "annotations", None)
    return annotations.get(key) if isinstance(annotations, dict) else None


def describe(pod: Any) -> str:
    """Return ``namespace/name (uid …, phase …)`` for a log line."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"{where} (uid {uid(pod) or 'unknown'}, phase {phase(pod) or 'unknown'})"
