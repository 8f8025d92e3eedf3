# SPDX-License-Identifier: Apache-2.0
"""What the soak calls doubled, refused, lost: a verdict that cannot fail would prove nothing."""

from __future__ import annotations

import json

import pytest

from tests.soak import audit, plan, verdict
from tests.soak.airflow_side import Row
from tests.soak.audit import Pod

SLOTS = {"a": 0, "b": 0}


def pod(uid, *, at=0.0, ti="1", number=1, **more):
    return Pod(uid, f"worker-{uid}", at, ti, number, ("run", "plain", int(ti)), "1", None, **more)


def worked(uid, *, at=0.0, report="success", **more):
    return pod(
        uid,
        at=at,
        started_at=at + 1,
        reported_at=at + 2,
        reports=report,
        report=report,
        ended_at=at + 3,
        **more,
    )


def row(ti="1", state="success", task="plain", number=1):
    return Row(ti, task, "run", int(ti), number, state)


def judge(rows, pods, slots=None):
    return verdict.judge(rows, pods, {201: len(pods)}, SLOTS if slots is None else slots)


def test_one_pod_that_worked_is_what_must_be():
    outcome = judge([row()], [worked("a")])
    assert outcome.deviations == []
    assert (outcome.launches.pods, outcome.launches.started, outcome.launches.doubled) == (1, 1, 0)


@pytest.mark.parametrize(
    ("more", "fate"),
    [
        ({"refused": 404}, "refused_stale"),
        ({"refused": 409}, "refused_stale"),
        ({"refused": 403}, "refused_token"),
        ({"refused": 403, "ended_at": 119.0}, "refused_token"),
        ({"refused": 403, "ended_at": 121.0}, "overdue"),
        ({"refused": 422}, "unexplained"),
        ({"unreachable": True}, "unreachable"),
        ({"refused": 500}, "unreachable"),
        ({"deleted_at": 2.0}, "deleted"),
        ({"deleted_at": 2.0, "revoked": True}, "revoked"),
        ({}, "unexplained"),
    ],
)
def test_a_pod_that_did_not_start_has_a_fate(more, fate):
    assert verdict.fate(pod("a", **more)) == fate


def test_a_second_pod_beside_a_live_one_is_doubled():
    first, second = worked("a", at=0), pod("b", at=1.5, refused=409, ended_at=2)
    launches = judge([row()], [first, second]).launches
    assert launches.doubled == 1
    assert launches.doubled_by_fate == {"refused_stale": 1}


def test_the_fate_told_is_that_of_the_pod_that_did_not_work():
    first, second = pod("a", refused=409, ended_at=9), worked("b", at=1)
    assert judge([row()], [first, second]).launches.doubled_by_fate == {"refused_stale": 1}


def test_two_pods_of_one_launch_that_both_work_are_told():
    outcome = judge([row()], [worked("a", report="defer"), worked("b", at=1)])
    assert outcome.deviations == ["1 launches had two pods that both worked"]


def test_a_second_pod_that_is_turned_away_is_told_and_a_deleted_one_is_not():
    turned_away = pod("b", at=1.5, refused=409, ended_at=2)
    deleted = pod("b", at=1.5, deleted_at=2.0, revoked=True)
    said = "1 launches had a second pod that the Execution API had to turn away"
    assert said in judge([row()], [worked("a"), turned_away]).deviations
    assert judge([row()], [worked("a"), deleted]).deviations == []


def test_a_late_pod_that_works_is_told():
    outcome = verdict.judge([row("2")], [worked("a", at=101.0)], {}, {"a": 0}, 0, {"1": 100.0})
    assert "1 pods that were made after their task instance had moved on worked" in outcome.deviations


@pytest.mark.parametrize(("planned", "said"), [(1, ""), (2, ""), (5, "3 task instances are missing")])
def test_rows_that_are_not_there_are_told(planned, said):
    assert verdict.too_few([row(), row("2")], planned) == said


def test_a_pod_refused_because_an_earlier_one_did_the_work_is_doubled_too():
    launches = judge([row()], [worked("a"), pod("b", at=9, refused=409)]).launches
    assert launches.doubled_by_fate == {"refused_stale": 1}


@pytest.mark.parametrize(("at", "late"), [(99.0, 0), (101.5, 1)])
def test_a_pod_made_after_its_task_instance_got_its_next_id_is_late(at, late):
    made = pod("a", at=at, refused=404)
    launches = verdict.judge([row("2")], [made], {}, {}, 0, {made.ti_id: 100.0}).launches
    assert (launches.late, launches.latest_by) == (late, 1.5 * late)
    assert launches.late_by_fate == ({"refused_stale": 1} if late else {})


def test_a_resumed_launch_that_is_refused_is_not_doubled():
    launches = judge([row()], [worked("a", report="defer"), pod("b", at=9, refused=404)]).launches
    assert launches.doubled == 0


def test_a_pod_refused_because_its_task_instance_has_moved_on_is_not_doubled():
    launches = judge([row("2")], [pod("a", refused=404), worked("b", ti="2", at=9)]).launches
    assert (launches.refused_stale, launches.doubled) == (1, 0)


@pytest.mark.parametrize(
    "before",
    [
        worked("a", report="reschedule"),
        pod("a", deleted_at=4.0),
        pod("a", refused=403, ended_at=4.0),
    ],
)
def test_a_pod_after_the_end_of_the_earlier_one_is_not_doubled(before):
    assert judge([row()], [before, worked("b", at=5)]).launches.doubled == 0


def test_other_tries_and_other_task_instances_do_not_double():
    pods = [worked("a"), worked("b", number=2), worked("c", ti="2")]
    assert judge([row(), row("2")], pods).launches.doubled == 0


@pytest.mark.parametrize(
    ("rows", "pods", "slots", "said"),
    [
        ([row(state="queued")], [], None, "1 task instances ended as queued"),
        ([row(state=None)], [], None, "1 task instances ended as none"),
        ([row(state="failed")], [], None, "1 task instances ended as failed"),
        ([row()], [], None, "1 task instances are successful although no worker said so"),
        ([row()], [worked("a"), worked("b", at=9)], None, "1 task instances were worked through twice"),
        ([row()], [pod("a", refused=403), worked("b", at=9)], None, "1 pods had an expired launch token"),
        ([row()], [worked("a")], {"a": 2}, "scheduler a still holds 2 slots"),
        ([row()], [worked("a")], {"b": None}, "scheduler b did not say which slots it holds"),
    ],
)
def test_what_must_not_be_is_said(rows, pods, slots, said):
    assert said in judge(rows, pods, slots).deviations


def test_tries_that_nobody_ended_are_burnt():
    rows = [row(number=4), row("2", task="retried", number=2)]
    outcome = verdict.judge(rows, [worked("a", ti="2", report="retry")], {}, {}, cleared=1)
    assert (outcome.tries_made, outcome.tries_burnt) == (6, 2)


def event(verb, name, code, second, **more):
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "userAgent": "executor",
        "objectRef": {"name": name},
        "responseStatus": {"code": code},
        "stageTimestamp": f"2026-01-01T00:00:{second:02}.000000Z",
        **more,
    }


def created(name, uid, second):
    ti = {"id": "1", "try_number": 1, "run_id": "run", "task_id": "plain", "map_index": 0}
    body = {
        "metadata": {"name": name, "uid": uid, "labels": {"airflow-worker": "7"}, "annotations": {}},
        "spec": {"containers": [{"args": ["--json-string", json.dumps({"ti": ti})]}]},
    }
    return event("create", name, 201, second, responseObject=body)


def test_the_logs_become_pods(tmp_path):
    lines = [
        created("one", "u1", 1),
        event("create", "one", 409, 2),
        event("patch", "one", 200, 3, requestObject={"metadata": {"labels": {"revoked": "True"}}}),
        event("delete", "one", 404, 4),
        event("delete", "one", 200, 5),
        created("one", "u2", 6),  # the name is free again
        {**event("delete", "one", 200, 7), "userAgent": "test-player"},
    ]
    (tmp_path / "audit.log").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut o')
    journal = [
        {"t": 3.0, "pod": "u2", "event": "started"},
        {"t": 4.5, "pod": "u2", "event": "reported", "sent": 4.0, "end": "success"},
        {"t": 5.0, "pod": "unknown", "event": "started"},
    ]
    (tmp_path / "journal").write_text("".join(json.dumps(line) + "\n" for line in journal))
    (first, second), statuses = audit.pods(tmp_path / "audit.log", tmp_path / "journal")
    assert statuses == {201: 2, 409: 1}
    assert first.revoked
    assert first.deleted_at - first.created_at == 4
    assert (second.deleted_at, second.revoked, second.report, second.over_at) == (None, False, "success", 4.0)


def test_one_seed_gives_both_implementations_the_same_faults():
    ours, theirs = (plan.soak(impl, 7, 2000, 300) for impl in plan.IMPLS)
    assert ours.faults == theirs.faults
    assert ours.faults != plan.soak("steadfast", 8, 2000, 300).faults
    assert len(ours.faults) >= 20
    assert all(fault.target in plan.SCHEDULERS for fault in ours.faults if fault.kind == "kill")
