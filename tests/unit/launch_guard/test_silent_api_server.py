# SPDX-License-Identifier: Apache-2.0
"""An API server that accepts requests and never answers: a loop waits for it once, not once for each pod."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from urllib3.exceptions import ReadTimeoutError

from airflow_steadfast import signals
from airflow_steadfast.kube import reader
from airflow_steadfast.launch_guard.creation import READ_TIME, Creation
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import Recheck
from airflow_steadfast.launch_guard.results import PAUSE, Results
from airflow_steadfast.launch_guard.stale import LONGEST_PAUSE, SLOW
from tests.support.guard_queue import QUEUED, Job, World, plain_launches

SECONDS = 7.0


def silence():
    return ReadTimeoutError(None, "/api/v1/namespaces/airflow/pods/a", "Read timed out.")


def pod(name):
    return SimpleNamespace(
        metadata=SimpleNamespace(namespace="airflow", name=name, annotations={}, labels={}), status=None
    )


class Server(World):
    """A queue, and a server whose every answer takes seconds that pass on the queue's clock."""

    def __init__(self, budget):
        super().__init__()
        self.reads = 0
        self.silent = True
        self.takes = SECONDS
        executor = SimpleNamespace(kube_scheduler=SimpleNamespace(kube_client=self))
        ignore = lambda *_: None  # noqa: E731 - nothing of it is looked at here
        self.creation = Creation(
            executor,
            self.queue,
            budget=budget,
            dress=ignore,
            created=ignore,
            adopted=ignore,
            broken=self.broken,
        )

    def broken(self, error):
        raise error

    def read_pod(self, *_):
        self.reads += 1
        self.now += self.takes
        if self.silent:
            raise silence()

    def batch(self, *names):
        """Create a pod for each as the concurrent path does, in vain; the outcomes."""
        for name in names:
            self.queue.put(Job(name, name))
        self.queue.begin_loop()
        self.creation.begin_loop()
        attempts = [self.creation.begin(self.queue.get_nowait()) for _ in names]
        for number, attempt in enumerate(attempts):
            self.creation.built(attempt, pod(f"pod-{number}"))
        return [self.creation.failed(attempt, silence()) for attempt in attempts]


@pytest.fixture
def server(monkeypatch):
    plain_launches(monkeypatch)

    def make(budget=120.0):
        made = Server(budget)
        monkeypatch.setattr(reader, "impatient", lambda api: api)
        monkeypatch.setattr(reader, "read_pod", made.read_pod)
        return made

    return make


def test_after_a_silent_read_the_rest_of_a_batch_is_queued_again_unread(server):
    one = server()
    assert one.batch("a", "b", "c") == ["settled"] * 3
    assert one.reads == 1
    assert one.queue.qsize() == 3


def test_each_loop_reads_anew(server):
    one = server()
    one.batch("a", "b")
    one.batch("c", "d")
    assert one.reads == 2


def test_answers_may_take_a_few_seconds_of_a_loop_together(server):
    one = server()
    one.silent, one.takes = False, READ_TIME / 4
    assert one.batch(*"abcdefgh") == ["settled"] * 8
    assert one.reads == 4


def test_without_a_budget_each_pod_is_looked_up_since_nothing_is_tried_again(server):
    one = server(budget=0.0)
    assert one.batch("a", "b") == ["native"] * 2
    assert one.reads == 2


@pytest.mark.parametrize(("takes", "tried"), [(SLOW, 1), (SLOW / 2, 3)])
def test_after_a_slow_failure_no_other_pod_is_revoked_in_that_loop(takes, tried, monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    clock, names = [0.0], []

    def revoke(ref, _):
        names.append(ref.name)
        clock[0] += takes
        return "failed"

    recheck = Recheck(
        SimpleNamespace(read=lambda _: {}),
        SimpleNamespace(revoke=revoke),
        lambda *_: False,
        lambda *_: None,
        clock=lambda: clock[0],
    )
    for name in "abc":
        entry = Entry(Job(name, name), Launch(name, 1, key=name))
        entry.launch_id, entry.pod = LaunchId(name, 1, QUEUED), PodRef("airflow", name)
        recheck.created(entry)
    recheck.end_loop()
    assert len(names) == tried
    names.clear()
    clock[0] += LONGEST_PAUSE
    recheck.end_loop()
    assert len(names) == tried


def test_what_could_not_be_tidied_up_is_tried_one_by_one_while_the_server_fails(server):
    one, deletions, fails = server(), [], [True]

    def delete_pod(*, pod_name, namespace):
        deletions.append(pod_name)
        if fails:
            raise silence()

    executor = SimpleNamespace(
        kube_config=SimpleNamespace(delete_worker_pods=True, delete_worker_pods_on_failure=True),
        kube_scheduler=SimpleNamespace(delete_pod=delete_pod),
    )
    results = Results(executor, one.queue)
    for name in "abc":
        results.tidy(
            SimpleNamespace(namespace="airflow", pod_name=name, state="failed", resource_version="1")
        )
    deletions.clear()
    one.now += PAUSE
    results.begin_loop()
    assert len(deletions) == 1
    deletions.clear()
    fails.clear()
    one.now += PAUSE
    results.begin_loop()
    assert sorted(deletions) == ["a", "b", "c"]
