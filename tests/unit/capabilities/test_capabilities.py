# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from airflow_steadfast import capabilities
from airflow_steadfast.capabilities import Versions


def found(airflow="3.3.2", provider="10.25.0"):
    return Versions(airflow, provider, "3.11.7")


@pytest.mark.parametrize(
    ("airflow", "provider"),
    [("3.3.2", "10.25.0"), ("2.11.2", "10.8.2"), ("3.3.9", "10.20.0"), ("3.0.6", "10.8.2")],
)
def test_inside_what_was_tested(airflow, provider):
    assert capabilities.untested_reason(found(airflow, provider)) == ""


@pytest.mark.parametrize(
    ("airflow", "provider", "said"),
    [
        ("3.4.0", "10.25.0", "Airflow 3.4.0"),
        ("2.10.5", "10.8.2", "Airflow 2.10.5"),
        ("3.3.2", "10.25.1", "10.25.1 is newer than 10.25.0"),
        ("3.3.2", "11.0.0rc1", "11.0.0rc1 is newer"),
        ("3.3.2", "10.8.1", "10.8.1 is older"),
        ("", "", "Airflow ?"),
    ],
)
def test_outside_is_named(airflow, provider, said):
    assert said in capabilities.untested_reason(found(airflow, provider))


class Seams:
    def start(self): ...
    def end(self): ...
    def execute_async(self, key, command, queue=None, executor_config=None): ...
    def revoke_task(self, *, ti): ...
    def _flush_task_queue(self): ...
    def _list_pods(self, query_kwargs): ...
    def _make_safe_label_value(self, input_value): ...
    def log_task_event(self, *, event, extra, ti_key): ...
    def adopt_launched_task(self, kube_client, pod, tis_to_flush_by_key): ...
    def _change_state(self, results, session=None): ...
    def fail(self, key, info=None): ...
    def sync(self):
        self._change_state(self.task_queue.get_nowait())


def methods(cls):
    return {name: method for name, method in vars(cls).items() if callable(method)}


def guard(cls, allow_untested=False, versions=None):
    return capabilities.launch_guard(cls, versions or found(), allow_untested=allow_untested)


def test_matching_seams_are_active():
    assert guard(Seams).active
    assert not guard(Seams, versions=found(provider="99.0")).active
    assert guard(Seams, versions=found(provider="99.0"), allow_untested=True).active


def test_airflow_2_is_guarded_too():
    assert guard(Seams, versions=found(airflow="2.11.2")).active


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        ("revoke_task", None, "no method revoke_task"),
        ("execute_async", lambda self, key, queue: None, "no parameter command"),
        ("execute_async", 5, "no readable signature"),
        ("sync", lambda self: None, "task_queue"),
        (
            "sync",
            lambda self: self.task_queue.get_nowait(),
            "Other.sync does not hand results to _change_state",
        ),
        ("adopt_launched_task", None, "no method adopt_launched_task"),
        (
            "adopt_launched_task",
            lambda self, kube_client, pod, tis_to_flush_by_key, session: None,
            "asks for a parameter session",
        ),
        ("_should_create_pod_for_job", lambda self: None, "no parameter task"),
        ("_alive_other_scheduler_job_ids", lambda self, since: None, "asks for a parameter since"),
    ],
)
def test_a_seam_that_does_not_match_is_named(name, method, said):
    other = type("Other", (), {**methods(Seams), name: method})
    assert said in guard(other, allow_untested=True).reason


def test_a_method_that_only_the_base_class_has_is_no_seam():
    base = type("Base", (Seams,), {"__module__": "airflow.executors.base_executor", "start": Seams.start})
    assert "no method start of its own" in guard(type("Other", (base,), {})).reason
    assert guard(type("Own", (base,), {"start": lambda self: None})).active


def test_a_users_subclass_that_asks_the_provider_uses_what_the_provider_does():
    own = type("Own", (Seams,), {"sync": lambda self: super(own, self).sync()})
    assert capabilities.uses(own, "sync", "_change_state")
    assert not capabilities.uses(own, "start", "_change_state")


@pytest.mark.parametrize(
    ("airflow", "has"), [("3.2.2", False), ("3.3.0", True), ("3.10.1", True), ("", False)]
)
def test_the_state_store_came_with_3_3(airflow, has):
    assert capabilities.has_task_state_store(found(airflow)) is has
