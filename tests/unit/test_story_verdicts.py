# SPDX-License-Identifier: Apache-2.0
"""Each story told on a stage that lies in one respect: the telling must fail and say in which."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.stories import fallback, lost_worker, reattach, stale
from tests.cluster.stories.outcome import StoryFailedError
from tests.cluster.stories.pods import SeenPod

DROPPED = f'{stale.DROPPED}{{reason="task_instance_missing"}}'
DECIDED = "steadfast_launches_decided_total"


def worker(uid: str, identity: str) -> SeenPod:
    return SeenPod(uid, uid, {}, {}, {"id": identity, "run_id": "r"}, 0.0, ["Failed"])


class Stage:
    """A stage whose answers are given; what is not given is as the stories want it."""

    def __init__(self, *, grown: dict[str, float], pods: list[SeenPod], marks: list[str], state="success"):
        self.grown = grown
        self.pods = pods
        self.cleared = False
        self.settlements = 0
        self.metrics = SimpleNamespace(settled=self._settled, totals=lambda: self.grown)
        self.ledger = SimpleNamespace(
            marks=lambda _run, _event="start": [{"who": who} for who in marks],
            release=lambda _run: None,
        )
        self.airflow = SimpleNamespace(
            trigger=lambda *_: None,
            clear_run=lambda *_: setattr(self, "cleared", True),
            run_state=lambda *_: state,
            task_instances=self._task_instances,
        )
        self.kubectl: Any = None

    def new_run_id(self, _story: str) -> str:
        return "r"

    def allow_workers(self, _pods: int) -> None:
        pass

    def kill_main_process(self, *_: str) -> None:
        pass

    def sql(self, statement: str) -> list[list[str]]:
        return [["pod_identifier"]] if statement.startswith("DELETE") else [['{"uid": "u"}']]

    def _settled(self) -> dict[str, float]:
        self.settlements += 1
        return {} if self.settlements == 1 else self.grown

    def _task_instances(self, *_: str) -> list[dict[str, str]]:
        age, state = ("new", "success") if self.cleared else ("old", "queued")
        return [{"id": f"{age}-{number}", "state": state} for number in range(stale.TASKS)]


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """Put the stage's own pods where the watch is; no story waits."""

    def watch(stage: Stage) -> Any:
        return SimpleNamespace(
            check=lambda: None,
            workers=lambda _run: [pod for pod in stage.pods if pod.is_worker and stage.cleared],
            operator_pods=lambda _run: [pod for pod in stage.pods if not pod.is_worker],
        )

    def use(stage: Stage) -> Stage:
        seen = watch(stage)
        for module in (stale, lost_worker):
            monkeypatch.setattr(module, "PodWatch", lambda _kubectl: nullcontext(seen))
        monkeypatch.setattr(stale.time, "sleep", lambda _seconds: None)
        return stage

    return use


def fresh_pods() -> list[SeenPod]:
    return [worker(f"pod-{number}", f"new-{number}") for number in range(stale.TASKS)]


def stale_stage(**lies: Any) -> Stage:
    told = {
        "grown": {DROPPED: 24.0, DECIDED: 48.0},
        "pods": fresh_pods(),
        "marks": [f"task-{number}" for number in range(stale.TASKS)],
    }
    return Stage(**{**told, **lies})


def test_story_1_as_told(watched) -> None:
    assert stale.tell(watched(stale_stage()), 4).figures["executions"] == "24"


@pytest.mark.parametrize(
    ("lies", "said"),
    [
        ({"grown": {DECIDED: 48.0}}, "workloads dropped.*at least 20, seen 0"),
        (
            {"grown": {DROPPED: 48.0, DECIDED: 72.0}},
            "dropped = task instances superseded: expected 24, seen 48",
        ),
        ({"pods": [*fresh_pods(), worker("late", "old-3")]}, "pods for superseded.*expected 0, seen 1"),
        ({"pods": [*fresh_pods(), worker("twin", "new-3")]}, "exactly one pod: expected 24, seen 23"),
        ({"pods": fresh_pods()[1:]}, "exactly one pod: expected 24, seen 23"),
        ({"marks": [f"task-{n}" for n in (*range(24), 5)]}, "ran exactly once: expected 24, seen 23"),
        ({"state": "failed"}, "expected the run to succeed"),
    ],
    ids=["not counted", "counted twice", "stale pod", "two pods", "no pod", "ran twice", "failed"],
)
def test_story_1_not_as_told(watched, lies, said) -> None:
    with pytest.raises(StoryFailedError, match=said):
        stale.tell(watched(stale_stage(**lies)), 4)


def pods_of_a_lost_worker() -> list[SeenPod]:
    operator = SeenPod("kpo", "kpo", {}, {}, {}, 0.0, ["Running"])
    return [worker("first", "one"), worker("second", "two"), operator]


class LosingStage(Stage):
    """Shows one worker until it is killed, then the retry's as well."""

    def kill_main_process(self, *_: str) -> None:
        self.cleared = True


@pytest.fixture
def losing(watched, monkeypatch):
    def use(grown: dict[str, float], **lies: Any) -> Stage:
        told: dict[str, Any] = {"pods": pods_of_a_lost_worker(), "marks": ["kpo"]}
        stage = LosingStage(grown=grown, **{**told, **lies})
        watched(stage)
        monkeypatch.setattr(lost_worker, "_start", lambda *_: (stage.kill_main_process(), stage.pods[0])[1])
        return stage

    return use


HIT = {lost_worker.ATTEMPTS: 1.0, lost_worker.HITS: 1.0}
FALLBACK = {lost_worker.ATTEMPTS: 1.0, lost_worker.fallback_series("no_record"): 1.0}


@pytest.mark.parametrize(("story", "grown"), [(reattach, HIT), (fallback, FALLBACK)], ids=["2", "3"])
def test_stories_2_and_3_as_told(losing, story, grown) -> None:
    assert story.tell(losing(grown)).figures["executions of the pod"] == "1"


@pytest.mark.parametrize(
    ("story", "grown", "lies", "said"),
    [
        (reattach, FALLBACK, {}, "expected the increase .*identity_hits.* seen .*no_record"),
        (fallback, HIT, {}, "expected the increase .*no_record.* seen .*identity_hits"),
        (reattach, HIT, {"marks": ["kpo", "kpo-2"]}, "executions of the pod: expected 1, seen 2"),
        (reattach, HIT, {"state": "failed"}, "state of the run: expected 'success', seen 'failed'"),
        (reattach, {**HIT, lost_worker.HARVESTED: 1.0}, {}, "harvested_total: expected 0, seen 1"),
        (reattach, {**HIT, lost_worker.ATTEMPTS: 2.0}, {}, "attempts_total: expected 1, seen 2"),
    ],
    ids=["by label", "by identity", "ran twice", "failed", "harvested", "counted twice"],
)
def test_stories_2_and_3_not_as_told(losing, story, grown, lies, said) -> None:
    with pytest.raises(StoryFailedError, match=said):
        story.tell(losing(grown, **lies))
