# SPDX-License-Identifier: Apache-2.0
"""Between stories: the sidecar and the scheduler are killed, and no count may be lost or doubled."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.cluster.stories.outcome import Outcome, difference, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.stories.stage import Stage

SIDECAR = "steadfast-sidecar"
SCHEDULER = "scheduler"
# What belongs to a process and not to the count: the sidecar's own troubles start at 0 with it.
_OF_THE_PROCESS = ("steadfast_collector_errors_total",)
_COUNTED = ("_total", "_count", "_sum", "_bucket")


def tell(stage: Stage) -> Outcome:
    """SIGKILL both containers, wait until they are back, and compare every counter with what it was.

    Raises StoryFailedError with each counter that changed.
    """
    outcome = Outcome("between stories, both containers killed")
    before = counters(stage.metrics.settled())
    killed_at = time.time()
    restarts = _restarts(stage)
    pod = stage.component_pod("scheduler")["metadata"]["name"]
    for container in (SIDECAR, SCHEDULER):
        stage.kill_main_process(pod, container)
    wait_for(
        "sidecar and scheduler restarted and ready",
        lambda: _back(stage, restarts),
        lambda waiting: not waiting,
        300,
        2,
    )
    outcome.record("seconds until both were back", f"{time.time() - killed_at:.0f}")
    after = counters(stage.metrics.settled())
    outcome.expect("counters compared", len(before), len(after))
    outcome.expect("counters lost or doubled", {}, difference(before, after))
    return outcome


def counters(totals: Mapping[str, float]) -> dict[str, float]:
    """Keep of all series those that must never fall or jump by a restart."""
    return {
        key: value
        for key, value in totals.items()
        if key.split("{")[0].endswith(_COUNTED) and not key.startswith(_OF_THE_PROCESS)
    }


def _statuses(stage: Stage) -> dict[str, dict[str, object]]:
    status = stage.component_pod("scheduler")["status"]
    found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {container["name"]: container for container in found}


def _restarts(stage: Stage) -> dict[str, int]:
    return {name: int(str(status["restartCount"])) for name, status in _statuses(stage).items()}


def _back(stage: Stage, before: Mapping[str, int]) -> list[str]:
    """Name the killed containers that are not back yet."""
    now = _statuses(stage)
    return [
        name
        for name in (SIDECAR, SCHEDULER)
        if int(str(now[name]["restartCount"])) <= before[name] or not now[name].get("ready")
    ]
