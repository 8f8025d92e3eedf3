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
    def log_task_event(self, *, event, extra, ti_key): ...
    def sync(self):
        self.task_queue.get_nowait()


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
        ("sync", lambda self: None, "task_queue"),
    ],
)
def test_a_seam_that_does_not_match_is_named(name, method, said):
    other = type("Other", (Seams,), {name: method})
    assert said in guard(other, allow_untested=True).reason


@pytest.mark.parametrize(
    ("airflow", "has"), [("3.2.2", False), ("3.3.0", True), ("3.10.1", True), ("", False)]
)
def test_the_state_store_came_with_3_3(airflow, has):
    assert capabilities.has_task_state_store(found(airflow)) is has
