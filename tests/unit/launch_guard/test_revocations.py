# SPDX-License-Identifier: Apache-2.0
"""Task instances revoked while the API server fails: which pods are looked for, when, and for how long."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from kubernetes.client.exceptions import ApiException

from airflow_steadfast import signals
from airflow_steadfast.kube import reader
from airflow_steadfast.launch_guard.launch import PodRef
from airflow_steadfast.launch_guard.revocations import MOST, PATIENCE, PAUSE, Revocations
from airflow_steadfast.launch_guard.stale import FEW, SLOW
from tests.support.guard_queue import total

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
REFUSED = ApiException(status=503, reason="Service Unavailable")


def ti(task_id="a", map_index=-1):
    return SimpleNamespace(dag_id="d", task_id=task_id, run_id="r", map_index=map_index)


class Server:
    """An API server whose clock is an hour ahead, with pods as it stores them."""

    def __init__(self):
        self.now = 100.0
        self.items = []
        self.refuses = False
        self.lists = []
        self.outcomes = {}
        self.takes = 0.0
        self.tried = []
        self.wanted = set()
        config = SimpleNamespace(kube_namespace="airflow", multi_namespace_mode=False)
        self.executor = SimpleNamespace(
            kube_config=config,
            kube_client=self,
            job_id=7,
            _make_safe_label_value=lambda value: f"safe-{value}",
        )
        self.revocations = Revocations(
            self.executor, self, lambda ref: ref.name in self.wanted, lambda: self.now
        )

    def clock(self, moment):
        return START + timedelta(hours=1, seconds=moment)

    def pod(self, name, task_id="a", *, created=0.0, launch=None, **annotations):
        about = {"dag_id": "d", "task_id": task_id, "run_id": "r", "try_number": "1", **annotations}
        if launch is not None:
            about["steadfast/launch"] = launch
        moment = self.clock(created).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.items.append(
            {"namespace": "airflow", "name": name, "creationTimestamp": moment, "annotations": about}
        )

    def list_metadata(self, api, namespace, selector):
        assert api is self
        self.lists.append((namespace, selector))
        if self.refuses:
            raise REFUSED
        return reader.Listing(list(self.items), self.clock(self.now))

    def revoke(self, ref, launch):
        self.tried.append((ref, launch))
        self.now += self.takes
        return self.outcomes.get(ref.name, "revoked")

    def loop(self, after=PAUSE):
        self.now += after
        before = len(self.tried)
        self.revocations.begin_loop()
        self.revocations.end_loop()
        return [ref.name for ref, _ in self.tried[before:]]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    made = Server()
    monkeypatch.setattr(reader, "list_metadata", made.list_metadata)
    return made


def test_with_nothing_revoked_nothing_is_listed(server):
    server.pod("a")
    assert server.loop() == []
    assert server.lists == []


def test_its_pods_are_listed_by_the_executors_label_and_revoked_with_their_launch(server):
    server.pod("one", launch="launch 1")
    server.pod("two")
    server.pod("other", task_id="b")
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop() == ["one", "two"]
    assert server.tried == [(PodRef("airflow", "one"), "launch 1"), (PodRef("airflow", "two"), None)]
    assert server.lists == [("airflow", "airflow-worker=safe-7")]
    assert total("pods_revoked_total") == 2
    assert server.loop() == []
    assert len(server.lists) == 1


@pytest.mark.parametrize(("namespaces", "listed"), [(None, [None]), ([], [None]), (["x", "y"], ["x", "y"])])
def test_all_namespaces_that_the_executor_uses_are_listed(namespaces, listed, server):
    server.executor.kube_config.multi_namespace_mode = True
    server.executor.kube_config.multi_namespace_mode_namespace_list = namespaces
    server.revocations.refused(ti(), REFUSED, 0.1)
    server.loop()
    assert [namespace for namespace, _ in server.lists] == listed


def test_a_mapped_task_instance_is_told_from_its_siblings(server):
    server.pod("zero", map_index="0")
    server.pod("one", map_index="1")
    server.pod("none")
    server.revocations.refused(ti(map_index=1), REFUSED, 0.1)
    assert server.loop() == ["one"]


def test_a_pod_created_after_the_revocation_is_another_launchs(server):
    """By the server's own clock, which is an hour ahead of this one's."""
    server.pod("old", created=98.0)
    server.pod("in the same second", created=100.0)
    server.pod("new", created=103.0)
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop() == ["old"]


def test_a_pod_that_a_live_launch_has_is_left_alone(server):
    server.pod("one")
    server.pod("two")
    server.wanted = {"one"}
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop() == ["two"]


def test_a_pod_that_cannot_be_revoked_is_tried_again_after_a_pause(server):
    server.pod("one")
    server.outcomes = {"one": "failed"}
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop() == ["one"]
    assert server.loop(PAUSE / 2) == []
    server.outcomes = {}
    assert server.loop(PAUSE / 2) == ["one"]
    assert server.loop() == []
    assert total("pods_revoked_total") == 1


@pytest.mark.parametrize("outcome", ["started", "gone", "foreign"])
def test_other_outcomes_end_it_and_are_not_counted(outcome, server):
    server.pod("one")
    server.outcomes = {"one": outcome}
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop() == ["one"]
    assert server.loop() == []
    assert total("pods_revoked_total") == 0


def test_a_refused_list_is_tried_again_for_ten_minutes_and_then_told_of(server, caplog):
    server.pod("one")
    server.refuses = True
    server.revocations.refused(ti(), REFUSED, 0.1)
    assert server.loop(PATIENCE - 1) == []
    caplog.clear()
    with caplog.at_level(logging.WARNING, "airflow_steadfast.launch_guard"):
        server.loop()
    assert "task_id='a'" in caplog.text
    server.refuses = False
    assert server.loop() == []
    assert len(server.lists) == 2


def test_what_is_not_the_servers_error_is_raised(server):
    with pytest.raises(NotImplementedError):
        server.revocations.refused(ti(), NotImplementedError(), 0.0)
    assert server.loop() == []


def test_a_bug_in_the_listing_is_raised(server, monkeypatch):
    def fail(*_):
        raise KeyError("items")

    monkeypatch.setattr(reader, "list_metadata", fail)
    server.revocations.postpone(ti())
    with pytest.raises(KeyError):
        server.loop()


@pytest.mark.parametrize(("took", "silent"), [(SLOW - 0.1, False), (SLOW, True)])
def test_a_slow_refusal_makes_the_rest_of_the_loop_leave_the_server_alone(took, silent, server):
    server.pod("one")
    server.revocations.begin_loop()
    server.revocations.refused(ti(), REFUSED, took)
    assert server.revocations.silent is silent
    server.now += PAUSE
    server.revocations.end_loop()
    assert len(server.lists) == (0 if silent else 1)
    server.revocations.begin_loop()
    assert not server.revocations.silent


@pytest.mark.parametrize(("takes", "most"), [(0.0, FEW), (SLOW / 2, FEW), (SLOW, 1)])
def test_a_server_that_lists_and_refuses_to_delete_holds_up_no_loop(takes, most, server):
    """A delete without an answer takes seconds, and each of many would."""
    names = [str(number) for number in range(FEW + 2)]
    for name in names:
        server.pod(name, task_id=name)
        server.revocations.postpone(ti(name))
    server.outcomes, server.takes = dict.fromkeys(names, "failed"), takes
    first, second = server.loop(), server.loop()
    assert first == names[:most]
    assert second[0] == names[most]  # the others have their turn
    server.outcomes, server.takes = {}, 0.0
    assert sorted(server.loop()) == names


def test_a_task_instance_whose_pod_was_adopted_is_forgotten(server):
    server.pod("one")
    server.revocations.postpone(ti())
    server.revocations.settled(ti())
    server.revocations.settled(ti("b"))
    assert server.loop() == []
    assert server.lists == []


def test_no_more_than_a_bounded_number_is_remembered(server):
    for number in range(MOST + 1):
        server.pod(str(number), task_id=str(number))
        server.revocations.postpone(ti(str(number)))
    assert len(server.loop()) == MOST


class Client:
    """The client's own calls, with an answer as the server sends it."""

    def __init__(self):
        self.api_client = SimpleNamespace(default_headers={"User-Agent": "x"})
        self.asked = []

    def answer(self, *namespace, **request):
        self.asked.append((namespace, request, dict(self.api_client.default_headers)))
        body = {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}
        return SimpleNamespace(data=json.dumps(body).encode(), headers={"Date": format_datetime(START)})

    list_namespaced_pod = list_pod_for_all_namespaces = answer


@pytest.mark.parametrize("namespace", ["airflow", None])
def test_a_listing_has_metadata_alone_and_the_servers_clock(namespace, monkeypatch):
    stock, once = Client(), Client()
    monkeypatch.setattr(reader, "impatient", lambda api: once if api is stock else None)
    assert reader.list_metadata(stock, namespace, "x=y") == ([{"name": "a"}, {"name": "b"}], START)
    ((asked, request, headers),) = once.asked
    assert asked == (() if namespace is None else ("airflow",))
    assert (request["label_selector"], request["_request_timeout"]) == ("x=y", reader.TIMEOUT)
    assert "PartialObjectMetadataList" in headers["Accept"]
    assert stock.api_client.default_headers == {"User-Agent": "x"}


def test_a_client_that_cannot_be_copied_is_not_changed(monkeypatch):
    stock = Client()
    monkeypatch.setattr(reader, "impatient", lambda api: api)
    assert reader.list_metadata(stock, "airflow", "x=y").at == START
    assert stock.api_client.default_headers == {"User-Agent": "x"}
