# SPDX-License-Identifier: Apache-2.0
"""Nothing stays of a launch that is over: a scheduler makes tens of thousands of them in its life."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from airflow_steadfast.kube import reader
from airflow_steadfast.launch_guard.creation import Creation
from airflow_steadfast.launch_guard.results import Results
from tests.support.guard_queue import Job, World, plain_launches


class Request(SimpleNamespace):
    """A pod, as large as a template makes it."""


def request_of(key):
    metadata = SimpleNamespace(namespace="airflow", name=key, annotations={}, labels={})
    return Request(metadata=metadata, status=None)


def refused(status, body=""):
    error = OSError("no answer")
    error.status, error.body, error.headers = status, body, {}
    return error


class Executor(World):
    def __init__(self):
        super().__init__()
        self.executor = SimpleNamespace(running=set(), kube_scheduler=SimpleNamespace(kube_client=None))
        self.results = Results(self.executor, self.queue)
        ignore = lambda *_: None  # noqa: E731 - nothing of it is looked at here
        self.creation = Creation(
            self.executor,
            self.queue,
            budget=120,
            dress=ignore,
            created=self.results.created,
            adopted=ignore,
            broken=ignore,
        )

    def begin(self, key):
        self.queue.put(Job(key, key))
        entry = self.take()
        attempt = self.creation.begin(entry.job)
        self.creation.built(attempt, request_of(key))
        return entry, attempt

    def make(self, key):
        entry, attempt = self.begin(key)
        self.creation.done(attempt)
        end = SimpleNamespace(key=key, namespace="airflow", pod_name=key, state=None, resource_version="9")
        self.results.handling(end)
        self.results.handled(end)
        return entry, attempt

    def fail(self, key):
        entry, attempt = self.begin(key)
        self.creation.failed(attempt, refused(422))
        self.queue.launches.forget(key, entry)  # as the next launch of the key, or pruning, does
        return entry, attempt

    def drop(self, key):
        entry, attempt = self.begin(key)
        self.creation.failed(attempt, refused(403, "exceeded quota"))
        self.stale = {key}
        self.loop()
        return entry, attempt


@pytest.mark.parametrize("way", ["make", "fail", "drop"])
def test_entry_attempt_and_pod_are_let_go(way, monkeypatch):
    plain_launches(monkeypatch)
    monkeypatch.setattr(reader, "impatient", lambda api: api)
    monkeypatch.setattr(reader, "read_pod", lambda *_: None)
    executor = Executor()
    entry, attempt = getattr(executor, way)("a")
    kept = [weakref.ref(entry), weakref.ref(attempt), weakref.ref(attempt.request)]
    del entry, attempt
    executor.queue.begin_loop()
    gc.collect()
    assert [one() for one in kept] == [None] * 3
    assert len(executor.queue.launches._launches) == 0
