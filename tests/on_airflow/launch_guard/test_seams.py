# SPDX-License-Identifier: Apache-2.0
"""A provider without one of the seams: whichever it is, the executor starts and works natively.

Each seam is taken out of the real provider, its launcher's too; only the watchers are not started.
"""

from __future__ import annotations

import contextlib

import pytest
from airflow.providers.cncf.kubernetes.executors import (
    kubernetes_executor,
    kubernetes_executor_types,
    kubernetes_executor_utils,
)
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import AirflowKubernetesScheduler

from airflow_steadfast import capabilities, signals
from airflow_steadfast.launch_guard import naming, seams
from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor
from airflow_steadfast.launch_guard.queue import GuardedQueue
from tests.support import kube_side

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

BASE = [cls for cls in KubernetesExecutor.__mro__ if cls.__module__ == "airflow.executors.base_executor"]
ATTRIBUTES = [(name, "") for name in seams.ATTRIBUTES] + [
    ("kube_config", part) for part in seams.ATTRIBUTES["kube_config"]
]
HAS_ATTEMPTS = hasattr(kubernetes_executor, "_PodLaunchAttempt")


@pytest.fixture(autouse=True)
def real_launcher(monkeypatch):
    """The provider's launcher, without its watchers, which would ask a server."""
    monkeypatch.setattr(AirflowKubernetesScheduler, "_make_kube_watchers", lambda _: {})
    monkeypatch.setattr(kube_side, "RecordingScheduler", AirflowKubernetesScheduler)


def active():
    return {
        mode
        for mode in signals.catalogue.MODES
        if signals.totals().value("steadfast_patch_active", component="launch_guard", mode=mode)
    }


@pytest.fixture
def starts_natively(start_executor, caplog):
    """Start an executor and assert that it is the stock one, and that one line says why."""

    def start(*named):
        caplog.clear()
        executor = start_executor()
        assert not isinstance(getattr(executor, "task_queue", None), GuardedQueue)
        assert executor._steadfast_guard is None
        assert active() == set()
        lines = [record for record in caplog.records if record.name == "airflow_steadfast.launch_guard"]
        (line,) = [one.getMessage() for one in lines if one.levelname != "INFO"]
        for word in ("not active", *named):
            assert word in line
        assert not any(record.exc_info for record in lines)
        return executor

    return start


def test_the_real_launcher_is_guarded(start_executor):
    executor = start_executor()
    assert isinstance(executor.task_queue, GuardedQueue)
    assert active() == {"enforce"}


@pytest.mark.parametrize("name", [name for name in capabilities.EXECUTOR_SEAMS if name != "start"])
def test_an_executor_without_a_method(name, starts_natively, monkeypatch):
    with monkeypatch.context() as without:
        if name in vars(KubernetesExecutor):
            without.delattr(KubernetesExecutor, name)
        else:
            without.delattr(next(base for base in BASE if name in vars(base)), name)
        executor = starts_natively(name)
    # methods of the provider, not the guard's: theirs may take other parameters now
    left = [one for one in vars(GuardedKubernetesExecutor) if hasattr(KubernetesExecutor, one)]
    aside = {name, "start", "_list_pods"}  # the last one is this harness's own, there is no server
    for one in (one for one in left if one not in aside and not one.startswith("__")):
        assert getattr(executor, one).__func__ is getattr(KubernetesExecutor, one)
    vars(executor).pop(name, None)  # there again, for the test's own end


def test_an_executor_whose_start_is_not_the_providers(start_executor, monkeypatch):
    with monkeypatch.context() as without:
        without.delattr(KubernetesExecutor, "start")
        executor = start_executor()
    assert executor._steadfast_guard is None
    assert active() == set()
    executor.task_queue = None
    kube_side.start(executor)  # so that there is something to end


@pytest.mark.parametrize("name", capabilities.LATER_EXECUTOR_SEAMS)
def test_a_later_method_may_be_missing_and_may_not_be_another(
    name, start_executor, starts_natively, monkeypatch
):
    with monkeypatch.context() as without:
        without.delattr(KubernetesExecutor, name, raising=False)
        assert isinstance(start_executor().task_queue, GuardedQueue)
    with monkeypatch.context() as other:
        other.setattr(KubernetesExecutor, name, lambda self, something: something, raising=False)
        signals.totals().set_gauge("steadfast_patch_active", 0, component="launch_guard", mode="enforce")
        starts_natively(name)


@pytest.mark.parametrize("name", seams.LAUNCHER)
def test_a_launcher_without_a_method(name, starts_natively, monkeypatch):
    with monkeypatch.context() as without:
        without.delattr(AirflowKubernetesScheduler, name)
        starts_natively(name)


@pytest.mark.parametrize("name", [*seams.LAUNCHER, *seams.LATER_LAUNCHER])
def test_a_launcher_whose_method_asks_for_more(name, starts_natively, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(AirflowKubernetesScheduler, name, lambda self, something: something, raising=False)
        starts_natively(name)


@pytest.mark.parametrize(
    ("method", "name"), [("run_next", "run_pod_async"), ("run_next", naming.SEAM), ("sync", "_change_state")]
)
def test_a_method_that_goes_another_way(method, name, starts_natively, monkeypatch):
    with monkeypatch.context() as other:
        if method == "sync":
            other.setattr(KubernetesExecutor, "sync", lambda self: self.task_queue.get_nowait())
        else:
            other.delattr(AirflowKubernetesScheduler, "_build_pod_request", raising=False)
            used = {naming.SEAM: lambda self, next_job: self.run_pod_async(next_job)}
            other.setattr(
                AirflowKubernetesScheduler, "run_next", used.get(name, lambda self, next_job: next_job)
            )
            if name == naming.SEAM:
                other.delattr(AirflowKubernetesScheduler, "run_next_batch", raising=False)
        starts_natively(name)


def test_a_launcher_without_the_naming_function(starts_natively, monkeypatch):
    with monkeypatch.context() as without:
        without.delattr(kubernetes_executor_utils, naming.SEAM)
        starts_natively(naming.SEAM)
    with monkeypatch.context() as other:
        other.setattr(kubernetes_executor_utils, naming.SEAM, lambda dag_id, task_id: dag_id + task_id)
        starts_natively(naming.SEAM, "unique")


@pytest.mark.parametrize(("name", "part"), ATTRIBUTES)
def test_a_started_executor_without_an_attribute(name, part, starts_natively, monkeypatch):
    native, taken = KubernetesExecutor.start, []

    def start(self):
        native(self)
        owner, attribute = (getattr(self, name), part) if part else (self, name)
        taken.append((owner, attribute, getattr(owner, attribute)))
        delattr(owner, attribute)

    with monkeypatch.context() as other:
        other.setattr(KubernetesExecutor, "start", start)
        other.setattr(kube_side, "start", started_without_a_look(kube_side.start))
        starts_natively(part or name)
    setattr(*taken[0])


def started_without_a_look(start):
    """``kube_side.start`` reads the launcher of the executor that it has started."""

    def quietly(executor, *args):
        with contextlib.suppress(AttributeError):
            start(executor, *args)

    return quietly


@pytest.mark.parametrize(
    ("name", "field"), [(name, one) for name, all_ in seams.RECORDS.items() for one in all_]
)
def test_a_record_without_a_field(name, field, starts_natively, monkeypatch):
    record = getattr(kubernetes_executor_types, name)
    with monkeypatch.context() as other:
        other.setattr(record, "_fields", tuple(one for one in record._fields if one != field))
        starts_natively(name, field)


@pytest.mark.parametrize("word", seams.WORDS)
def test_a_word_that_means_something_else(word, starts_natively, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(kubernetes_executor_types, word, "something else")
        starts_natively(word)


@pytest.mark.skipif(not HAS_ATTEMPTS, reason="before provider 10.20 there are no launch attempts")
@pytest.mark.parametrize("field", seams.ATTEMPT)
def test_an_attempt_without_a_field(field, starts_natively, monkeypatch):
    fields = kubernetes_executor._PodLaunchAttempt.__dataclass_fields__
    with monkeypatch.context() as other:
        other.delitem(fields, field)
        starts_natively(field)
