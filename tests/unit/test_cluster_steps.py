# SPDX-License-Identifier: Apache-2.0
"""The runner of the cluster's steps: order, overlap, failures that name their log."""

import threading

import pytest

from tests.cluster.kind import commands, steps
from tests.cluster.kind.commands import ClusterError
from tests.cluster.kind.steps import Runner, Step, StepError, check


def nothing(_log):
    return "done"


def runner(tmp_path, lines=None, **more):
    ticks = iter(range(10_000))
    return Runner(tmp_path, (lines if lines is not None else []).append, lambda: next(ticks) / 10, **more)


def test_a_step_starts_after_what_it_needs(tmp_path):
    order = []

    def note(name):
        return lambda _log: order.append(name) or "done"

    plan = [Step("c", note("c"), ("a", "b")), Step("b", note("b"), ("a",)), Step("a", note("a"))]
    runner(tmp_path).run(plan)
    assert order == ["a", "b", "c"]


def test_steps_without_needs_run_side_by_side(tmp_path):
    both = threading.Barrier(2, timeout=10)

    def meet(_log):
        both.wait()
        return "met"

    runner(tmp_path).run([Step("one", meet), Step("two", meet)])


def test_each_step_prints_what_it_did(tmp_path):
    lines = []
    runner(tmp_path, lines).one("image airflow", lambda _log: "built")
    assert len(lines) == 1
    assert lines[0].startswith("[")
    assert "] image airflow ... built in " in lines[0]


def test_a_step_that_takes_its_time_prints_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "QUIET_SECONDS", 0)
    lines = []
    said = threading.Event()

    def say(line):
        lines.append(line)
        said.set()

    def wait(_log):
        assert said.wait(10)
        return "built"

    Runner(tmp_path, say).one("image airflow", wait)
    assert lines[0].endswith("] image airflow ...")
    assert "image airflow ... built in " in lines[1]


def test_a_long_silence_is_broken_by_what_is_at_work(tmp_path):
    lines, spoken = [], threading.Event()

    def say(line):
        lines.append(line)
        if "still at work" in line:
            spoken.set()

    def wait(_log):
        spoken.wait(10)
        return "built"

    Runner(tmp_path, say, quiet=0.01).one("compile kubernetes", wait)
    assert any("still at work: compile kubernetes" in line for line in lines)


def test_a_failure_names_the_step_the_reason_and_the_log(tmp_path):
    def fail(log):
        log.run(["sh", "-c", "echo no such mirror; exit 3"])
        return "never"

    with pytest.raises(StepError) as error:
        runner(tmp_path).one("node debian", fail)
    text = str(error.value)
    assert "step 'node debian' failed" in text
    assert "ended with 3" in text
    assert "no such mirror" in text
    assert str(tmp_path / "node-debian.log") in text


def test_nothing_starts_after_a_failure(tmp_path):
    started = []

    def fail(_log):
        raise ClusterError("no")

    plan = [Step("bad", fail), Step("next", lambda _log: started.append(1) or "", ("bad",))]
    with pytest.raises(StepError):
        runner(tmp_path).run(plan)
    assert started == []


def test_a_failure_ends_the_commands_of_other_steps(tmp_path):
    running = threading.Event()

    def long(log):
        running.set()
        log.run(["sleep", "600"])
        return "never"

    def fail(_log):
        running.wait(10)
        while not commands.processes.running:
            threading.Event().wait(0.01)
        raise ClusterError("no")

    with pytest.raises(StepError, match="'bad'"):
        runner(tmp_path).run([Step("long", long), Step("bad", fail)])


def test_another_plan_can_follow_a_failed_one(tmp_path):
    def fail(_log):
        raise ClusterError("no")

    used = runner(tmp_path)
    with pytest.raises(StepError):
        used.one("bad", fail)
    used.one("good", lambda log: log.run(["true"]) or "done")


def test_a_mistake_in_the_code_is_not_dressed_up(tmp_path):
    def broken(_log):
        raise KeyError("typo")

    with pytest.raises(KeyError):
        runner(tmp_path).one("broken", broken)


def test_a_second_run_starts_its_log_anew(tmp_path):
    for word in ("first", "second"):
        runner(tmp_path).one("step", lambda log, w=word: log.note(w) or "done")
    (line,) = (tmp_path / "step.log").read_text().splitlines()
    assert line.endswith(" second")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([Step("a", nothing), Step("a", nothing)], "named twice: a"),
        ([Step("a", nothing, ("b",))], "no step fulfils: b"),
        ([Step("a", nothing, ("b",)), Step("b", nothing, ("a",))], "wait for each other: a, b"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        check(plan)
