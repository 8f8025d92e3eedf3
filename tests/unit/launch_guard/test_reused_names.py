# SPDX-License-Identifier: Apache-2.0
"""A name that pod_override forces is one pod's after the other: late reports of the first end no second."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_steadfast.kube import reader
from airflow_steadfast.launch_guard.creation import Creation
from airflow_steadfast.launch_guard.launch import PodRef
from airflow_steadfast.launch_guard.results import PAUSE, Results
from tests.support.guard_queue import Job, World, plain_launches

REF = PodRef("airflow", "forced")


def pod(version):
    metadata = SimpleNamespace(
        namespace=REF.namespace, name=REF.name, annotations={}, labels={}, resource_version=version
    )
    return SimpleNamespace(metadata=metadata, status=None)


def report(key, version, state=None):
    return SimpleNamespace(
        key=key, namespace=REF.namespace, pod_name=REF.name, state=state, resource_version=version
    )


class Executor(World):
    """A queue, the outcome of creates, results, and a server that holds one pod."""

    def __init__(self):
        super().__init__()
        self.deleted: list[str] = []
        self.fails = False
        self.executor = SimpleNamespace(
            running=set(),
            kube_config=SimpleNamespace(delete_worker_pods=True, delete_worker_pods_on_failure=True),
            kube_scheduler=SimpleNamespace(kube_client=None, delete_pod=self.delete_pod),
        )
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

    def delete_pod(self, *, pod_name, namespace):
        if self.fails:
            raise OSError("down")
        self.deleted.append(pod_name)

    def create(self, key):
        """Create a pod under the forced name by the concurrent path, which returns no pod."""
        self.queue.put(Job(key, key))
        self.executor.running.add(key)
        attempt = self.creation.begin(self.take().job)
        self.creation.built(attempt, pod(None))
        self.creation.done(attempt)


@pytest.fixture
def executor(monkeypatch):
    plain_launches(monkeypatch)
    monkeypatch.setattr(reader, "impatient", lambda api: api)
    monkeypatch.setattr(reader, "read_pod", lambda *_: pod("50"))
    return Executor()


@pytest.mark.parametrize(("version", "handling"), [("40", "ignore"), ("50", "native"), ("60", "native")])
def test_a_report_from_before_a_pod_was_made_is_not_of_it_on_the_concurrent_path_either(
    version, handling, executor
):
    executor.create("a")
    assert executor.results.handling(report("a", version)) == handling


def test_another_report_of_a_pod_whose_name_is_a_living_pods_is_ignored(executor):
    """The provider deletes a pod by name with each report of its end."""
    executor.create("a")
    assert executor.results.handling(report("first", "40")) == "ignore"


def test_the_first_report_of_an_end_is_the_providers_whoever_has_the_name(executor):
    executor.create("a")
    executor.executor.running.add("first")
    assert executor.results.handling(report("first", "40")) == "native"


def test_once_a_pod_has_ended_its_name_is_nobodys(executor):
    executor.create("a")
    end = report("a", "60")
    assert executor.results.handling(end) == "native"
    executor.executor.running.clear()
    executor.results.handled(end)
    executor.queue.begin_loop()
    assert executor.results.handling(report("first", "70")) == "native"


def test_what_was_left_to_tidy_up_is_not_a_later_pod_of_that_name(executor):
    executor.fails = True
    executor.results.tidy(report("a", "40"))
    executor.fails = False
    executor.create("a")
    executor.now += PAUSE
    executor.results.begin_loop()
    assert executor.deleted == []


def test_what_was_left_to_tidy_up_is_deleted_while_the_name_is_still_its_own(executor):
    executor.create("a")
    executor.fails = True
    executor.results.tidy(report("a", "60"))
    executor.fails = False
    executor.now += PAUSE
    executor.results.begin_loop()
    assert executor.deleted == [REF.name]


def test_a_pod_that_is_only_tidied_up_is_logged_once(executor, caplog):
    """The watcher reports each change of a pod on its way out."""
    executor.create("a")
    other = SimpleNamespace(**{**vars(report("a", "60")), "pod_name": "other"})
    with caplog.at_level("INFO", logger="airflow_steadfast.launch_guard"):
        assert [executor.results.handling(other) for _ in range(3)] == ["tidy"] * 3
    assert caplog.text.count("only tidied up") == 1
