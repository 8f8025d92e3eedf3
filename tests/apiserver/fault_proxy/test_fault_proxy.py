# SPDX-License-Identifier: Apache-2.0
"""The fault proxy does to a real client and a real server what its faults say."""

from __future__ import annotations

import itertools
import threading

import pytest
import urllib3
from kubernetes import client, config, watch
from kubernetes.client import models as k8s
from kubernetes.client.rest import ApiException

from tests.support.apiserver import api_server
from tests.support.fault_proxy import Fault, fault_proxy, refusal

pytestmark = pytest.mark.apiserver
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def direct():
    with api_server() as running:
        running.client().create_namespace(k8s.V1Namespace(metadata=k8s.V1ObjectMeta(name="workers")))
        yield running


@pytest.fixture(scope="module")
def started(direct):
    with fault_proxy(direct) as running:
        yield running


@pytest.fixture
def proxy(started):
    yield started
    started.clear()


@pytest.fixture
def api(proxy):
    loaded = client.Configuration()
    config.load_kube_config(str(proxy.kubeconfig), client_configuration=loaded)
    loaded.retries = False
    return client.CoreV1Api(client.ApiClient(loaded))


@pytest.fixture
def stored(direct):
    return lambda: {pod.metadata.name for pod in direct.client().list_namespaced_pod("workers").items}


def pod(name=""):
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name=name or f"pod-{next(NUMBERS)}"),
        spec=k8s.V1PodSpec(
            containers=[k8s.V1Container(name="base", image="none")], automount_service_account_token=False
        ),
    )


def test_without_faults_everything_passes(api, stored, proxy):
    before = len(proxy.log())
    made = api.create_namespaced_pod("workers", pod("plain"))
    assert api.read_namespaced_pod("plain", "workers").metadata.uid == made.metadata.uid
    assert "plain" in stored()
    assert [(seen.method, seen.status, seen.sent) for seen in proxy.log(before)] == [
        ("POST", 201, True),
        ("GET", 200, True),
    ]


@pytest.mark.parametrize("code", [403, 409, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("forward", [False, True], ids=["not_stored", "stored"])
def test_an_answer_of_our_own(code, forward, api, stored, proxy):
    proxy.add(refusal(code, retry_after=7, forward=forward, count=1))
    name = f"answer-{code}-{forward}".lower()
    with pytest.raises(ApiException) as caught:
        api.create_namespaced_pod("workers", pod(name))
    assert caught.value.status == code
    assert caught.value.headers["Retry-After"] == "7"
    assert (name in stored()) is forward
    api.create_namespaced_pod("workers", pod(f"{name}-next"))


@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["closed", "silent"])
def test_a_lost_reply_leaves_the_pod(seconds, api, stored, proxy):
    proxy.add(Fault("drop_reply", forward=True, seconds=seconds, count=1))
    name = f"lost-{int(seconds)}"
    with pytest.raises(urllib3.exceptions.HTTPError):
        api.create_namespaced_pod("workers", pod(name), _request_timeout=(5, 2))
    assert name in stored()


def test_a_reset_leaves_nothing(api, stored, proxy):
    proxy.add(Fault("reset", count=1))
    with pytest.raises(urllib3.exceptions.ProtocolError, match="Connection aborted"):
        api.create_namespaced_pod("workers", pod("never"))
    assert "never" not in stored()


def test_only_what_matches_is_hit_and_only_as_often_as_said(api, proxy):
    number = proxy.add(refusal(500, body='"name": ?"bad', skip=1, count=2))

    def outcome(name):
        try:
            api.create_namespaced_pod("workers", pod(name))
        except ApiException as error:
            return error.status
        return 201

    outcomes = [outcome(name) for name in ("good-a", "bad-a", "bad-b", "good-b", "bad-c", "bad-d")]
    assert outcomes == [201, 201, 500, 201, 500, 201]
    assert proxy.hits(number) == 2


@pytest.mark.parametrize("forward", [False, True], ids=["request", "reply"])
def test_a_hold_is_a_barrier(forward, api, stored, proxy):
    number = proxy.add(Fault("hold", forward=forward))
    name = f"held-{forward}".lower()
    thread = threading.Thread(target=api.create_namespaced_pod, args=("workers", pod(name)))
    thread.start()
    proxy.await_waiting(number, 1)
    assert (name in stored()) is forward
    proxy.remove(number)
    thread.join(30)
    assert not thread.is_alive()
    assert name in stored()


def test_a_watch_streams_and_can_be_stalled(api, direct, proxy):
    seen = []
    arrived = threading.Event()

    def follow():
        for event in watch.Watch().stream(api.list_namespaced_pod, "workers", timeout_seconds=60):
            seen.append(event["object"].metadata.name)
            arrived.set()
            if event["object"].metadata.name == "watched-2":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    own = direct.client()
    own.create_namespaced_pod("workers", pod("watched-1"))
    assert arrived.wait(30)
    number = proxy.add(Fault("stall", method="GET", query="watch="))
    own.create_namespaced_pod("workers", pod("watched-2"))
    proxy.await_waiting(number, 1)
    assert "watched-2" not in seen
    proxy.remove(number)
    thread.join(30)
    assert not thread.is_alive()
    assert "watched-2" in seen
