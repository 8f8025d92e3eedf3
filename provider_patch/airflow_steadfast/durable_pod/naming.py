# SPDX-License-Identifier: Apache-2.0
"""Pod names that a later try can work out for itself: the record where there is no store. Pure.

    <the operator's name, cut>-<10 characters of a hash of the task instance>[-<generation>]

The generation rises past pods that are over but still there. What a pod is called proves nothing: its
launch annotation does.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.task import TaskKey

LONGEST = 63
"""The longest host name, which a pod's name becomes."""

_RANDOM_SUFFIX = re.compile(r"-[a-z0-9]{8}\Z")


def digest(task: TaskKey) -> str:
    """Return 10 characters [0-9a-f] that every try of the task instance works out alike."""
    ids = [task.deployment, task.dag_id, task.run_id, task.task_id, task.map_index]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:10]


def pod_name(given: str, task: TaskKey, generation: int) -> str:
    """Return the pod's name; ``given`` is the name that the provider has built, with its random suffix."""
    suffix = "-" + digest(task) + (f"-{generation}" if generation else "")
    stem = _RANDOM_SUFFIX.sub("", given)[: LONGEST - len(suffix)].strip("-.")
    return (stem or "pod") + suffix


def launch(task: TaskKey, generation: int) -> str:
    """Return the value of the launch annotation."""
    return f"exact-{digest(task)}-{generation}"
