# SPDX-License-Identifier: Apache-2.0
"""The scheduler revokes launches whose pods are pending, or have just started."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import Fault, refusal
from tests.support.faults import POD, PODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage

REFUSED_SECONDS = 3.0
PATIENCE = 20.0
NO_WATCH = r"^(?!.*watch=)"


def _alive(stage: Stage) -> set[str]:
    """The names of the pods that are not being deleted."""
    return {pod["metadata"]["name"] for pod in stage.pods.all() if "deletionTimestamp" not in pod["metadata"]}


def _loop(stage: Stage, seconds: float, until_gone: Sequence[str] = ()) -> None:
    """Loop the schedulers, at most ``seconds``, or until the pods of these names have gone.

    One that has ended is replaced, as Kubernetes does.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (until_gone and _alive(stage).isdisjoint(until_gone)):
        for scheduler in list(stage.schedulers):
            if not scheduler.replaced and not scheduler.loop():
                stage.restart(scheduler)
        time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit


def _refused(stage: Stage, faults: Sequence[Fault]) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    rows = stage.rows()
    old = sorted(_alive(stage))
    assert len(old) == len(rows)
    numbers = [stage.proxy.add(fault) for fault in faults]
    revoked = scheduler.survives(scheduler.stuck)
    if revoked:
        deadline = time.monotonic() + REFUSED_SECONDS
        while time.monotonic() < deadline and scheduler.loop():
            time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit
    hits = sum(map(stage.proxy.hits, numbers))
    assert hits, "no list and no delete was refused: the fault was not played"
    stage.proxy.clear()
    if revoked:
        _loop(stage, PATIENCE, old)
    names = _alive(stage) & set(old) if revoked else set()
    left = {pod.ti_id for pod in stage.audit.created() if pod.name in names}
    stage.settle(quiet=8)
    # a scheduler that ended at the first refusal has revoked nothing: the old pods are adopted
    outcome = stage.judge(
        Want(row, 1 + revoked, flaw="the revoked launch's pod is left" * (row.ti_id in left), kind="doubled")
        for row in rows
    )
    outcome.note("requests refused", hits)
    return outcome


def _scenario(name: str, title: str, faults: Sequence[Fault], **facts: Any) -> None:
    def run(stage: Stage) -> Outcome:
        return _refused(stage, faults)

    run.__name__ = name
    expected = (
        "the scheduler goes on; the pending pod of the revoked launch is deleted once the server answers "
        "again, the launch queued anew has exactly one pod, the task succeeds in this try"
    )
    register(**{"holes": "H3, #39078", "title": title, "expected": expected, **facts})(run)


def _both(fault: Any) -> list[Fault]:
    """A fault for the lists of pods, and for the deletes."""
    return [fault(method="GET", path=PODS, query=NO_WATCH), fault(method="DELETE", path=POD)]


_scenario(
    "revoke_refused",
    "stuck-in-queued revokes pending pods while lists and deletes of pods are refused with 500",
    _both(lambda **at: refusal(500, **at)),
    size=200,
    trials=1,
    short=20,
)
_scenario(
    "revoke_unavailable",
    "the same with 503",
    _both(lambda **at: refusal(503, retry_after=1, **at)),
    size=200,
    trials=1,
)
_scenario(
    "revoke_reset",
    "the same with connections that are reset",
    _both(lambda **at: Fault("reset", **at)),
    size=200,
    trials=1,
)


@register(
    holes="#49889",
    title="worker starts between core's look for stuck tasks and its revoke",
    expected="core kills it and queues the task again: one more pod, the task succeeds in this try",
    size=200,
    trials=1,
    limit="core revokes without looking at the state again; the executor must do as it is told",
)
def revoked_after_start(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    rows = stage.rows()
    old = stage.pods.pending()
    barrier = stage.proxy.add(Fault("hold", method="GET", path=PODS, query=NO_WATCH))
    stuck = scheduler.in_background(scheduler.stuck)
    stage.proxy.await_waiting(barrier, 1)
    for pod in old:
        assert stage.workers.start(pod), "the worker was refused before the revoke"
    stage.proxy.remove(barrier)
    stuck.join()
    stage.settle(quiet=8)
    return stage.judge(Want(row, 2) for row in rows)
