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

    def __init__(self, api: Any, post: Callable[[Any], Any] | None = None) -> None:
        self.client = api
        self.pod: Any = None
        self.hook = SimpleNamespace(get_pod=api.read_namespaced_pod)
        self.pod_manager = SimpleNamespace(run_pod_async=post or self._post)

    def _post(self, request: Any) -> Any:
        return self.client.create_namespaced_pod("default", request)


def session_of(operator: Operator) -> Any:
    from airflow_steadfast.durable_pod import session as sessions

    store = SimpleNamespace(get=lambda _: None, set=lambda *_, **__: None)
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=0)
    return sessions.begin(operator, {"ti": ti, "run_id": "r", "task_state_store": store})


def test_a_lost_reply_of_the_create_makes_no_second_pod(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_steadfast.durable_pod import create

    monkeypatch.setattr(create.time, "sleep", lambda _: None)
    posts = 0

    def post(request: Any) -> Any:
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


def test_a_kill_deletes_this_trys_pod_and_not_its_successor(api: Any) -> None:
    from airflow_steadfast.durable_pod import create, termination

    operator = Operator(api)
    session = session_of(operator)
    create.create(session, manifest("killed"), session.new_identity("killed", "default"))
    api.delete_namespaced_pod("killed", "default", grace_period_seconds=0)
    successor = api.create_namespaced_pod("default", manifest("killed")).metadata.uid
    termination.kill(session, pytest.fail)
    assert operator._killed
    assert api.read_namespaced_pod("killed", "default").metadata.uid == successor


def test_a_replaced_pod_is_noticed_in_the_same_try(api: Any) -> None:
    from airflow_steadfast.durable_pod import create, methods

    session = session_of(Operator(api))
    create.create(session, manifest("replaced"), session.new_identity("replaced", "default"))
    assert methods._read_again(session).metadata.uid == session.identity.uid
    api.delete_namespaced_pod("replaced", "default", grace_period_seconds=0)
    assert methods._read_again(session) is None
    api.create_namespaced_pod("default", manifest("replaced"))
    with pytest.raises(methods.PodReplacedError, match="has taken its name"):
        methods._read_again(session)
