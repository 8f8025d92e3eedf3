# SPDX-License-Identifier: Apache-2.0
"""The pod that a dropped launch may have made, and pods that go without the check's doing."""

from __future__ import annotations

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchId, PodRef
from airflow_steadfast.launch_guard.recheck import Recheck
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.verdict import Verdict
from tests.support.guard_queue import LATER, QUEUED, Job

ROW = Row("queued", 1, 7, QUEUED)


class World:
    def __init__(self):
        self.answers: list[str] = []
        self.tried: list[str] = []
        self.revoked: list[str] = []
        self.gone: list[str] = []
        self.recheck = Recheck(
            self,
            self,
            lambda *_: False,
            lambda entry, *_: self.revoked.append(entry.job.key),
            clock=lambda: 0.0,
            gone=lambda entry, *_: self.gone.append(entry.job.key),
        )

    def read(self, keys):
        return {}

    def revoke(self, ref, launch):
        self.tried.append(ref.name)
        return self.answers.pop(0) if self.answers else "revoked"


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    return World()


def entry_of(name):
    entry = Entry(Job(name, name), Launch(name, 1, key=name))
    entry.launch_id, entry.pod = LaunchId(name, 1, QUEUED), PodRef("airflow", name)
    return entry


@pytest.mark.parametrize(
    ("verdict", "voids"),
    [
        # its worker has started, and the kubelet has not said so yet
        (Verdict("state_changed", ROW._replace(state="running")), False),
        (Verdict("try_superseded", ROW._replace(state="running", try_number=2)), False),
        (Verdict("state_changed", ROW._replace(state="success")), False),
        (Verdict("state_changed", ROW._replace(state="deferred")), False),
        # another scheduler has adopted the task instance, and the pod with it
        (Verdict("owner_changed", ROW._replace(queued_by_job_id=8)), False),
        # another scheduler has queued it anew, for a pod of its own
        (Verdict("owner_changed", ROW._replace(queued_by_job_id=8, queued_dttm=LATER)), True),
        (Verdict("superseded", ROW._replace(queued_dttm=LATER)), True),
        (Verdict("state_changed", ROW._replace(state="scheduled")), True),
        (Verdict("try_superseded", ROW._replace(try_number=2)), True),
        (Verdict("task_instance_missing"), True),
        (Verdict("superseded"), True),
    ],
)
def test_the_pod_in_doubt_of_a_dropped_launch_is_judged_like_any_created_pod(verdict, voids, world):
    world.recheck.void(entry_of("a"), verdict)
    world.recheck.end_loop()
    assert world.tried == (["a"] if voids else [])


def test_a_pod_that_has_gone_is_told_of_but_not_as_revoked(world):
    """Its deletion's answer was lost, or somebody else deleted it: no watcher tells of it."""
    world.recheck.created(entry_of("a"))
    world.answers = ["failed", "gone"]
    world.recheck.end_loop()
    assert (world.revoked, world.gone) == ([], [])
    world.recheck.end_loop()
    assert (world.revoked, world.gone) == ([], ["a"])
