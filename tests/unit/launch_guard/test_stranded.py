# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import stranded
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.stranded import Queued, Stranded, as_queued
from airflow_steadfast.launch_guard.verdict import Verdict

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)
T1 = T0 + timedelta(seconds=1)


class Job(NamedTuple):
    key: str


class World:
    def __init__(self):
        self.now = 0.0
        self.queued: dict[str, Queued] = {}
        self.looks: list[list[str]] = []
        self.down = False
        self.stranded = Stranded(self.look, lambda: self.now)

    def look(self, keys):
        self.looks.append(list(keys))
        if self.down:
            raise ConnectionError
        return {key: self.queued[key] for key in keys if key in self.queued}

    def drop(self, name, reason="owner_changed", queued_dttm=T0):
        entry = Entry(Job(name), Launch(name, 1, None))
        self.stranded.dropped(entry, Verdict(reason, Row("queued", 1, 2, queued_dttm)))

    def after(self, seconds):
        self.now += seconds
        self.stranded.end_loop()
        return signals.totals().value("steadfast_stranded_task_instances")


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    stranded.forget_all()
    return World()


def test_only_what_nobody_alive_has_is_stranded_while_it_is(world, caplog):
    for name in ("nobody", "alive", "moved_on", "queued_anew"):
        world.drop(name)
    world.queued = {
        "nobody": Queued(T0, owner_alive=False),
        "alive": Queued(T0, owner_alive=True),
        "queued_anew": Queued(T1, owner_alive=False),
    }
    assert world.after(29) == 0
    assert world.looks == []
    assert world.after(1) == 1
    assert "1 task instances are queued" in caplog.text
    assert world.after(29) == 1
    assert len(world.looks) == 1
    world.queued["alive"] = Queued(T0, owner_alive=False)
    assert world.after(1) == 2
    assert world.looks[1] == ["nobody", "alive"]
    world.queued.clear()
    assert world.after(30) == 0
    world.after(300)
    assert len(world.looks) == 3


@pytest.mark.parametrize("reason", ["task_instance_missing", "state_changed", "superseded", "token_expired"])
def test_other_drops_are_nobodys_loss(world, reason):
    world.drop("a", reason)
    world.after(300)
    assert world.looks == []


def test_without_an_answer_the_gauge_stays_and_the_next_look_waits(world):
    world.drop("a")
    world.queued["a"] = Queued(T0, owner_alive=False)
    assert world.after(30) == 1
    world.down = True
    assert world.after(30) == 1
    assert world.after(29) == 1
    assert len(world.looks) == 2


def test_the_oldest_is_forgotten_first(world):
    for number in range(stranded.MOST + 1):
        world.drop(str(number))
    world.after(30)
    assert len(world.looks[0]) == stranded.MOST
    assert world.looks[0][0] == "1"


def test_several_executors_share_the_gauge(world):
    other = World()
    for each in (world, other):
        each.drop("a")
        each.queued["a"] = Queued(T0, owner_alive=False)
    assert world.after(30) == 1
    assert other.after(30) == 2


@pytest.mark.parametrize(
    ("state", "beat", "alive"),
    [
        ("running", T1, True),
        ("running", T0, False),
        ("running", None, False),
        ("failed", T1, False),
        (None, None, False),
    ],
)
def test_an_owner_is_alive_while_its_job_runs_and_beats(state, beat, alive):
    assert as_queued([("ti", T0, state, beat)], T1) == {"ti": Queued(T0, alive)}
    assert as_queued([("dag", "task", "run", -1, T0, state, beat)], T1) == {
        ("dag", "task", "run", -1): Queued(T0, alive)
    }
