# SPDX-License-Identifier: Apache-2.0
"""The API server's answer to a create: lost, refused, late. Each must end in exactly one pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import Fault, refusal

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage

ONE_POD = "exactly one pod, the task succeeds"
RETRYING = {"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "1"}
ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}
TIMEOUT = {"KUBERNETES_EXECUTOR__KUBE_CLIENT_REQUEST_ARGS": '{"_request_timeout": 2}'}


def _play(stage: Stage, fault: Fault, loops: int) -> Outcome:
    """The creates of the first ``loops`` loops meet the fault, then the server is well again."""
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    number = stage.proxy.add(fault)
    for _ in range(loops):
        scheduler.survives(scheduler.work)
    hits = stage.proxy.hits(number)
    stage.proxy.clear()
    stage.settle(quiet=10)
    outcome = stage.judge(Want(row) for row in rows)
    outcome.note("creates that met the fault", hits)
    return outcome


def _scenario(
    name: str,
    title: str,
    fault: Fault,
    holes: str = "H7",
    expected: str = ONE_POD,
    loops: int = 1,
    **facts: Any,
) -> None:
    def run(stage: Stage) -> Outcome:
        return _play(stage, fault, loops)

    run.__name__ = name
    register(**{"holes": holes, "title": title, "expected": expected, "size": 200, "trials": 1, **facts})(run)


LOST = Fault("drop_reply", forward=True)

_scenario("reply_lost", "reply of the create lost, the pod is stored", LOST, short=30)
_scenario(
    "reply_lost_retrying",
    "the same with `task_publish_max_retries = 1`; both workers start",
    LOST,
    holes="H7, H9",
    config=RETRYING,
)
_scenario("reply_lost_async", "the same with `async_pod_creation`", LOST, config=ASYNC)
_scenario(
    "reply_late",
    "no reply until the client's read timeout, the pod is stored (`async_pod_creation`)",
    Fault("drop_reply", forward=True, seconds=20),
    config={**ASYNC, **TIMEOUT},
)
_scenario("reset_before", "connection reset before the server saw the create", Fault("reset"))
_scenario(
    "gateway_timeout_stored",
    "504, the pod is stored",
    refusal(504, forward=True),
)
_scenario(
    "gateway_timeout_stored_retrying",
    "the same with `task_publish_max_retries = 1`",
    refusal(504, forward=True),
    holes="H7, H9",
    config=RETRYING,
)
_scenario("gateway_timeout", "504, nothing stored", refusal(504))
_scenario("server_error_stored", "500, the pod is stored", refusal(500, forward=True), short=30)
_scenario("server_error", "500, nothing stored", refusal(500))
_scenario("unavailable", "503 with Retry-After 1", refusal(503, retry_after=1))
_scenario(
    "unavailable_async", "the same with `async_pod_creation`", refusal(503, retry_after=1), config=ASYNC
)
_scenario(
    "already_exists",
    "409 to a create whose pod was stored (the server's own storage retry)",
    refusal(409, forward=True),
    holes="H7, H8",
)
_scenario("throttled", "429 with Retry-After 1", refusal(429, retry_after=1), holes="H7, PR #57054", short=30)
_scenario(
    "throttled_async",
    "429 with Retry-After 1 to a whole concurrent batch",
    refusal(429, retry_after=1),
    holes="H7, PR #57054",
    config=ASYNC,
)
_scenario("quota", "403 exceeded quota", refusal(403), holes="H7, #36403")


@register(
    holes="H8, #21169",
    title="a retry whose name is fixed by `pod_override`, the finished pod of the first try is kept",
    expected="the finished pod makes room, exactly one new pod, the task succeeds",
    size=200,
    trials=1,
)
def fixed_name_retried(stage: Stage) -> Outcome:
    stage.dag("fixed_name")
    scheduler = stage.scheduler()
    scheduler.schedule()
    first = stage.rows()
    scheduler.heartbeat()
    scheduler.events()
    for pod in stage.pods.pending():
        if stage.workers.start(pod):
            stage.workers.report(pod, stage.workers.retry())
            stage.workers.exit(pod, 1)
    stage.settle(quiet=10)
    rows = stage.rows()
    tries = {row.ti_id: Want(row, 1, None) for row in first} | {row.ti_id: Want(row) for row in rows}
    outcome = stage.judge(tries.values())
    outcome.note("rows still in their first try", sum(row.try_number == 1 for row in rows))
    return outcome
