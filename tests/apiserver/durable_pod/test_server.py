# SPDX-License-Identifier: Apache-2.0
"""Single steps against the real API server: deletes bound to a uid, replies that are lost on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import ProtocolError

from tests.support.apiserver import api_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.apiserver]


@pytest.fixture(scope="module")
def api() -> Iterator[Any]:
    with api_server() as server:
        yield server.client()


def manifest(name: str, annotations: dict[str, str] | None = None) -> Any:
    from kubernetes import client

    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, namespace="default", annotations=annotations),
        spec=client.V1PodSpec(containers=[client.V1Container(name="base", image="i")]),
    )


def test_a_delete_hits_only_the_pod_that_was_meant(api: Any) -> None:
    from airflow_steadfast.kube.delete import delete_pod

    first = api.create_namespaced_pod("default", manifest("swapped")).metadata.uid
    assert delete_pod(api, "swapped", "default", first, grace_period_seconds=0) == "deleted"
    second = api.create_namespaced_pod("default", manifest("swapped")).metadata.uid
    assert delete_pod(api, "swapped", "default", first) == "gone"
    assert api.read_namespaced_pod("swapped", "default").metadata.uid == second
    assert delete_pod(api, "swapped", "default", second, grace_period_seconds=0) == "deleted"
    assert delete_pod(api, "swapped", "default", second) == "gone"


class Operator:
    """What ``create`` and ``termination`` use of an operator, over the real server."""

    _killed = False
    termination_grace_period = 0
    on_kill_action = SimpleNamespace(value="delete_pod")

    POD_CHECKED_KEY = "already_checked"
    base_container_name = "base"
    do_xcom_push = False

    def __init__(self, api: Any, post: Callable[..., Any] | None = None) -> None:
        self.client = api
        self.pod: Any = None
        self.pod_manager = SimpleNamespace(run_pod_async=post or self._post)

    def _post(self, request: Any, **keywords: Any) -> Any:
        return self.client.create_namespaced_pod("default", request, **keywords)


def session_of(operator: Operator, state: str | None = "running", try_number: int = 1) -> Any:
    """A session whose Airflow says ``state`` of the task instance; None is no answer."""
    from airflow_steadfast.durable_pod import session as sessions

    def states(**_: Any) -> Any:
        if state is None:
            raise ConnectionError("no answer")
        return {} if state == "gone" else {"r": {"t": state}}

    class TaskInstance(SimpleNamespace):
        get_task_states = staticmethod(states)

    store = SimpleNamespace(get=lambda _: None, set=lambda *_, **__: None)
    ti = TaskInstance(dag_id="d", task_id="t", map_index=-1, try_number=try_number, max_tries=2)
    return sessions.begin(operator, {"ti": ti, "run_id": "r", "task_state_store": store})


def test_a_lost_reply_of_the_create_makes_no_second_pod(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_steadfast.durable_pod import create, patience

    monkeypatch.setattr(patience.time, "sleep", lambda _: None)
    posts = 0

    def post(request: Any, **_: Any) -> Any:
        nonlocal posts
        posts += 1
        pod = api.create_namespaced_pod("default", request)
        if posts == 1:
            raise ProtocolError("connection reset")
        return pod

    session = session_of(Operator(api, post))
    request = manifest("lost-reply")
    pod, adopted = create.create(session, request, session.new_identity("lost-reply", "default"))
    assert (posts, adopted) == (2, True)
    assert pod.metadata.annotations["steadfast/launch"] == session.identity.launch
    assert session.identity.uid == pod.metadata.uid == session.operator.pod.metadata.uid


def test_a_name_held_by_a_dying_pod_is_waited_for(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_steadfast.durable_pod import create

    held = manifest("dying")
    held.metadata.finalizers = ["steadfast.test/hold"]
    api.create_namespaced_pod("default", held)
    api.delete_namespaced_pod("dying", "default", grace_period_seconds=0)

    def let_go(_: float) -> None:
        api.patch_namespaced_pod("dying", "default", {"metadata": {"finalizers": None}})

    monkeypatch.setattr(create.time, "sleep", let_go)
    session = session_of(Operator(api))
    pod, adopted = create.create(session, manifest("dying"), session.new_identity("dying", "default"))
    assert not adopted
    assert pod.metadata.deletion_timestamp is None


def test_an_error_that_no_repeat_cures_is_the_tasks(api: Any) -> None:
    from kubernetes.client.exceptions import ApiException

    from airflow_steadfast.durable_pod import create

    session = session_of(Operator(api))
    with pytest.raises(ApiException) as caught:
        create.create(session, manifest("x"), session.new_identity("Not A Name", "default"))
    assert caught.value.status == 422


def followed(api: Any, name: str, state: str | None = "running", try_number: int = 1) -> Any:
    """A session that follows a fresh pod of that name."""
    from airflow_steadfast.durable_pod import create

    session = session_of(Operator(api), state, try_number)
    create.create(session, manifest(name), session.new_identity(name, "default"))
    return session


def test_a_kill_only_raises(api: Any) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, "killed-raises", "failed")
    if termination._CALLER_RAISES:  # Airflow 2 raises by itself once this has returned
        termination.on_kill(session)
    else:
        with pytest.raises(termination.StopFollowing):
            termination.on_kill(session)
    assert session.stop_requested
    assert session.operator._killed
    assert api.read_namespaced_pod("killed-raises", "default").metadata.deletion_timestamp is None
    termination.on_kill(session)  # the second signal of a process group disturbs nothing


@pytest.mark.parametrize("state", ["failed", "success", "removed", "restarting", "gone"])
def test_a_pod_that_the_server_says_is_unwanted_is_deleted(api: Any, state: str) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, f"unwanted-{state}", state)
    assert "was deleted" in str(termination.conclude(session))
    assert gone(api, f"unwanted-{state}")


@pytest.mark.parametrize("state", ["running", "queued", "up_for_retry", "scheduled", None])
def test_a_pod_that_nobody_says_is_unwanted_is_left(api: Any, state: str | None) -> None:
    from airflow_steadfast.durable_pod import termination

    name = f"left-{state}".lower().replace("_", "-")
    session = followed(api, name, state)
    assert "is left to the next try" in str(termination.conclude(session))
    assert api.read_namespaced_pod(name, "default").metadata.deletion_timestamp is None


def test_the_deployment_may_have_it_deleted_without_evidence(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, "on-unknown", None)
    session.operator.on_unknown_kill = "delete"
    assert "on_unknown_kill=delete" in str(termination.conclude(session))
    assert gone(api, "on-unknown")


def test_the_pod_of_the_last_try_is_no_orphan(api: Any) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, "last-try", "running", try_number=3)
    assert "this was the last try" in str(termination.conclude(session))
    assert gone(api, "last-try")


def test_the_operators_wish_to_keep_its_pod_goes_before(api: Any) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, "kept", "failed")
    session.operator.on_kill_action = SimpleNamespace(value="keep_pod")
    assert "is left as it is" in str(termination.conclude(session))
    assert not gone(api, "kept")


def test_a_kill_deletes_this_trys_pod_and_not_its_successor(api: Any) -> None:
    from airflow_steadfast.durable_pod import termination

    session = followed(api, "killed", "failed")
    api.delete_namespaced_pod("killed", "default", grace_period_seconds=0)
    successor = api.create_namespaced_pod("default", manifest("killed")).metadata.uid
    termination.conclude(session)
    assert api.read_namespaced_pod("killed", "default").metadata.uid == successor


def test_a_kill_between_the_create_and_its_answer_finds_the_pod_by_its_launch(api: Any) -> None:
    from airflow_steadfast.durable_pod import create, termination
    from airflow_steadfast.kube import pods

    session = session_of(Operator(api), "failed")
    session.intent = session.new_identity("half-made", "default")
    mine = manifest("half-made", {pods.LAUNCH_ANNOTATION: str(session.intent.launch)})
    api.create_namespaced_pod("default", mine)
    termination.conclude(session)
    assert gone(api, "half-made")
    stranger = session_of(Operator(api), "failed")
    stranger.intent = stranger.new_identity("not-mine", "default")
    api.create_namespaced_pod("default", manifest("not-mine"))
    termination.conclude(stranger)
    assert not gone(api, "not-mine")
    assert create.PodNameTakenError  # the name is the successor's problem


def gone(api: Any, name: str) -> bool:
    from kubernetes.client.exceptions import ApiException

    try:
        return api.read_namespaced_pod(name, "default").metadata.deletion_timestamp is not None
    except ApiException as error:
        return error.status == 404


def test_a_replaced_pod_is_noticed_in_the_same_try(api: Any) -> None:
    from airflow_steadfast.durable_pod import following, termination

    session = followed(api, "replaced")
    assert following.find_followed(session).metadata.uid == session.identity.uid
    api.delete_namespaced_pod("replaced", "default", grace_period_seconds=0)
    assert following.find_followed(session) is None
    api.create_namespaced_pod("default", manifest("replaced"))
    with pytest.raises(termination.PodReplacedError, match="has taken its name"):
        following.find_followed(session)


def test_the_stamp_hits_only_the_pod_that_was_meant(api: Any) -> None:
    from airflow_steadfast.durable_pod import deletion

    operator = Operator(api)
    first = api.create_namespaced_pod("default", manifest("stamped"))
    deletion.stamp_checked(operator, first)
    assert api.read_namespaced_pod("stamped", "default").metadata.labels == {"already_checked": "True"}
    api.delete_namespaced_pod("stamped", "default", grace_period_seconds=0)
    deletion.stamp_checked(operator, first)
    api.create_namespaced_pod("default", manifest("stamped"))
    deletion.stamp_checked(operator, first)
    assert not api.read_namespaced_pod("stamped", "default").metadata.labels


class Refusing:
    """A client that answers a status first and then asks the real server."""

    def __init__(self, api: Any, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self._api, self._statuses, self._headers = api, list(statuses), headers

    def __getattr__(self, name: str) -> Any:
        from kubernetes.client.exceptions import ApiException

        def call(*args: Any, **keywords: Any) -> Any:
            if self._statuses:
                error = ApiException(status=self._statuses.pop(0), reason="injected")
                error.headers = self._headers
                raise error
            return getattr(self._api, name)(*args, **keywords)

        return call


def test_reads_outlast_an_outage_and_bound_what_the_server_asks(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast.durable_pod import following, patience

    slept: list[float] = []
    monkeypatch.setattr(patience.time, "sleep", slept.append)
    session = followed(api, "outage")
    session.operator.client = Refusing(api, 500, 502, 503, 504)
    assert following.find_followed(session).metadata.uid == session.identity.uid
    assert slept == [1.0, 2.0, 4.0, 8.0]
    session.operator.client = Refusing(api, 429, headers={"Retry-After": "86400"})
    assert following.find_followed(session).metadata.uid == session.identity.uid
    assert slept[-1] == patience.LONGEST_RETRY_AFTER


def test_patience_ends(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.client.exceptions import ApiException

    from airflow_steadfast.durable_pod import following, patience

    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(patience.time, "sleep", sleep)
    session = followed(api, "patience")
    monkeypatch.setattr(patience.time, "monotonic", lambda: now)
    session.operator.client = Refusing(api, *[503] * 100)
    with pytest.raises(ApiException):
        following.find_followed(session)
    assert 100 <= now <= patience.OUTAGE_SECONDS
