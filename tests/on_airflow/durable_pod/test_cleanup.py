# SPDX-License-Identifier: Apache-2.0
"""Which ends of a try let the provider clean up its pod, and which leave the pod to the next try."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

pytestmark = pytest.mark.airflow


def session_of(*, will_retry: bool = True, phase: str = "Running") -> tuple[Any, Any]:
    """A session that follows a pod, and the pod as last seen."""
    from kubernetes import client

    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.session import Session
    from airflow_steadfast.durable_pod.task import TaskKey

    operator = SimpleNamespace(
        do_xcom_push=False,
        base_container_name="base",
        on_kill_action=SimpleNamespace(value="keep_pod"),
        _killed=False,
    )
    task = TaskKey("d", "r", "t", -1, 1, 3, will_retry=will_retry)
    record = SimpleNamespace(mark_finished=lambda _: None)
    session = Session(operator, {}, task, record, None, identity=Identity("n", "ns", uid="u"))  # type: ignore[arg-type]  # not asked
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(name="n", namespace="ns", uid="u"),
        spec=client.V1PodSpec(containers=[], restart_policy="Never"),
        status=client.V1PodStatus(phase=phase),
    )
    return session, pod


def left(error: BaseException | None, **given: Any) -> bool:
    from airflow_steadfast.durable_pod import termination

    session, pod = session_of(**given)
    return termination.why_left(session, error, pod) is not None


OUTAGES = [ApiException(status=503), ProtocolError("reset"), ConnectionError(), TimeoutError()]


@pytest.mark.parametrize("error", [*OUTAGES, RuntimeError("a bug"), KeyError("k")], ids=repr)
def test_an_error_that_says_nothing_about_a_living_pod_leaves_it(error: Exception) -> None:
    assert left(error)
    assert not left(error, phase="Succeeded"), "an ended pod is dealt with"
    assert not left(error, will_retry=False), "no next try would find it"


def test_what_the_provider_says_about_the_pod_lets_it_clean_up() -> None:
    from airflow.providers.cncf.kubernetes.utils.pod_manager import PodLaunchTimeoutException

    assert not left(AirflowException("the pod failed"))
    assert not left(PodLaunchTimeoutException("too long"))
    assert not left(None)


def test_a_timeout_a_stop_and_a_namesake_are_not_the_providers_business() -> None:
    from airflow_steadfast.durable_pod import termination
    from airflow_steadfast.durable_pod.record import SupersededError

    assert left(termination.TIMEOUTS[0]("late"))
    assert left(termination.StopFollowing("stop"))
    assert left(termination.PodReplacedError("another"))
    assert left(SupersededError("gone"))


def test_a_stop_that_comes_when_the_work_is_done_changes_nothing() -> None:
    from airflow_steadfast.durable_pod import termination

    for phase, forgiven in (("Succeeded", True), ("Running", False)):
        session, pod = session_of(phase=phase)
        session.stop_requested = session.operator._killed = True
        termination.forgive_late_stop(session, pod)
        assert session.stop_requested is not forgiven
        assert session.operator._killed is not forgiven


def test_what_comes_after_the_end_is_no_stop() -> None:
    from airflow_steadfast.durable_pod import termination

    session, _pod = session_of()
    session.closed = True
    termination.on_kill(session)
    assert not session.stop_requested
