# SPDX-License-Identifier: Apache-2.0
"""The table of pairs, how one is named, and what the commands do with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_steadfast import capabilities
from tests.support import environment, matrix, matrix_page, pairs, tiers, tree
from tests.support.matrix_page import Result
from tests.support.tree import Suite

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("3.3.2", "3.3.2+10.25.0+py3.11"),
        ("3.3.2+10.20.0", "3.3.2+10.20.0+py3.11"),
        ("3.3.2+10.23.0+py3.13", "3.3.2+10.23.0+py3.13"),
        (" 2.11.2+10.8.2 ", "2.11.2+10.8.2+py3.11"),
        ("3.3.2+10.22.0", "3.3.2+10.22.0+py3.11"),
    ],
)
def test_a_pair_is_found_by_what_names_it(text, key):
    assert pairs.find(text).key == key


@pytest.mark.parametrize("text", ["", "3.4.0", "3.0.6+10.9.0", "3.0.6+10.8.2+py3.13", "3.3.2+py3.13"])
def test_a_name_that_is_no_pairs_is_answered_by_the_list(text):
    with pytest.raises(pairs.UnknownPairError) as caught:
        pairs.find(text)
    for pair in pairs.PAIRS:
        assert pair.key in str(caught.value)


def test_every_pair_finds_itself_and_has_pins():
    for pair in (*pairs.PAIRS, *pairs.COMPARED):
        assert pairs.find(pair.key) == pair
        pinned = environment.pins(pair).read_text(encoding="utf-8")
        assert f"apache-airflow=={pair.airflow} " in pinned
        assert f"apache-airflow-providers-cncf-kubernetes=={pair.provider} " in pinned
    assert pairs.PAIRS[0] == pairs.MAIN_PAIR
    assert len(set(map(environment.folder, pairs.PAIRS))) == len(pairs.PAIRS)


def test_what_is_called_tested_is_tested():
    assert {pair.airflow for pair in pairs.PAIRS} == set(capabilities.TESTED_AIRFLOW)
    providers = sorted(
        {pair.provider for pair in pairs.PAIRS}, key=lambda text: [int(part) for part in text.split(".")]
    )
    assert (providers[0], providers[-1]) == (capabilities.LOWEST_PROVIDER, capabilities.NEWEST_PROVIDER)


def test_turns_visit_every_older_pair():
    turns = {pairs.of_turn(number) for number in range(len(pairs.OLDER))}
    assert turns == set(pairs.OLDER)
    assert pairs.of_turn(len(pairs.OLDER)) == pairs.of_turn(0)
    assert pairs.of_turn(7, ()) is None


def test_a_turn_goes_to_a_pair_whose_python_is_here(monkeypatch, capsys):
    monkeypatch.setattr(tiers, "interpreter", lambda version: None if version == "3.12" else Path("python"))
    for number in range(20):
        monkeypatch.setattr(tiers.tree, "commit_count", lambda number=number: number)
        chosen = tiers.older_pair("")
        assert chosen is not None
        assert chosen.python == "3.11"
    assert "No Python 3.12 here: its pairs are left out" in capsys.readouterr().out
    assert tiers.older_pair("3.0.6+10.8.2") == pairs.find("3.0.6+10.8.2")
    with pytest.raises(environment.MissingError, match=r"PAIR=3\.2\.2: no Python 3\.12"):
        tiers.older_pair("3.2.2")


def test_a_lane_runs_each_part_of_the_tests_on_airflow():
    steps = {step for lane in tiers.FAST_LANES for step in lane}
    parts = {path.name for path in (ROOT / "tests" / "on_airflow").iterdir() if any(path.glob("test_*.py"))}
    assert {f"test-airflow PART={part}" for part in parts} <= steps


def test_each_step_is_a_command():
    commands = (ROOT / "Makefile").read_text(encoding="utf-8")
    lanes = (*tiers.FAST_LANES, tiers.CLUSTER_STEPS, tiers.LONG_STEPS)
    for step in (step for lane in lanes for step in lane):
        assert f"\n{step.split()[0]}: " in commands


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A matrix that keeps its results in a folder of the test's own; returns the runs that it makes."""
    runs = []

    def pytest_run(folder, path, log, report):
        runs.append(path)
        log.write_text("FAILED tests/x.py::test_a\n")
        report.write_text(
            "<testsuites><testsuite><testcase/><testcase/>"
            "<testcase><skipped message='why'/></testcase></testsuite></testsuites>"
        )
        return 0

    monkeypatch.setattr(matrix, "KEPT", tmp_path)
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    monkeypatch.setattr(matrix, "ensure", lambda pair: pair.key)
    monkeypatch.setattr(matrix.tree, "suites", lambda: (Suite("a", "tests/a", ()), Suite("b", "tests/b", ())))
    monkeypatch.setattr(matrix.tree, "digest", lambda _pair, _suite: "these files")
    monkeypatch.setattr(matrix, "_pytest", pytest_run)
    monkeypatch.delenv("FRESH", raising=False)
    return runs


def test_a_suite_that_passed_with_these_files_is_not_run_again(kept, monkeypatch):
    first = matrix.run(pairs.MAIN_PAIR)
    assert (first.passed, first.tests, first.failed, first.skipped) == (True, 4, 0, {"why": 2})
    assert matrix.run(pairs.MAIN_PAIR) == first
    assert kept == ["tests/a", "tests/b"]
    monkeypatch.setattr(matrix.tree, "digest", lambda _pair, suite: f"files of {suite.name == 'a'}")
    kept.clear()
    monkeypatch.setenv("FRESH", "1")
    matrix.run(pairs.MAIN_PAIR)
    monkeypatch.delenv("FRESH")
    monkeypatch.setattr(matrix.tree, "digest", lambda _pair, suite: f"files of {suite.name == 'x'}")
    matrix.run(pairs.MAIN_PAIR)
    assert kept == ["tests/a", "tests/b", "tests/a"]


def test_a_pair_with_a_failed_suite_failed_and_only_that_suite_is_run_again(kept, monkeypatch, capsys):
    passing = matrix._pytest

    def failing(folder, path, log, report):
        code = passing(folder, path, log, report)
        return code if path == "tests/a" else 1

    monkeypatch.setattr(matrix, "_pytest", failing)
    assert not matrix.run(pairs.MAIN_PAIR).passed
    assert not matrix.run(pairs.MAIN_PAIR).passed
    assert kept == ["tests/a", "tests/b", "tests/b"]
    assert capsys.readouterr().out.count("FAILED tests/x.py::test_a") == 2


def test_what_is_kept_is_no_pass_before_every_suite_has_run(kept, tmp_path):
    assert matrix.kept(pairs.MAIN_PAIR).outcome == "NOT RUN: no suite has run"
    matrix.run(pairs.MAIN_PAIR)
    assert matrix.kept(pairs.MAIN_PAIR).passed
    (tmp_path / pairs.MAIN_PAIR.key / "b.json").unlink()
    part = matrix.kept(pairs.MAIN_PAIR)
    assert not part.passed
    assert (part.outcome, part.tests) == ("NOT RUN: still to run: b", 2)


def test_a_run_that_was_killed_leaves_no_result(kept, monkeypatch):
    monkeypatch.setattr(
        matrix, "_pytest", lambda folder, path, log, report: -15 + 0 * log.write_text("killed")
    )
    assert not matrix.run(pairs.MAIN_PAIR).passed
    assert matrix.kept(pairs.MAIN_PAIR).outcome == "NOT RUN: no suite has run"


def test_no_test_at_all_is_no_pass():
    empty = Result("3.3.2+10.25.0+py3.11", "d", 0)
    assert not matrix_page.merged(empty.pair, [empty, Result(empty.pair, "d", 0, 5)]).passed


def test_a_suite_reads_its_own_half_of_the_patch(monkeypatch, tmp_path):
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    monkeypatch.setattr(tree, "pins", lambda _: tmp_path / "pins.txt")
    patch = "provider_patch/airflow_steadfast"
    places = ("pins.txt", f"{patch}/durable_pod/a.py", f"{patch}/launch_guard/a.py", "tests/support/a.py")
    tests = [
        f"tests/{name}/test_a.py" for name in ("on_airflow/durable_pod", "apiserver/launch_guard", "unit")
    ]
    for name in (*places, *tests):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")

    def changed_by(name):
        before = {suite.name: tree.digest(pairs.MAIN_PAIR, suite) for suite in tree.suites()}
        (tmp_path / name).write_text(f"after {name}")
        return {
            suite.name for suite in tree.suites() if tree.digest(pairs.MAIN_PAIR, suite) != before[suite.name]
        }

    assert changed_by("pins.txt") == {"unit", "durable_pod", "apiserver-launch_guard"}
    assert changed_by(f"{patch}/durable_pod/a.py") == {"unit", "durable_pod"}
    assert changed_by(f"{patch}/launch_guard/a.py") == {"unit", "apiserver-launch_guard"}
    assert changed_by("tests/support/a.py") == {"unit", "durable_pod", "apiserver-launch_guard"}
    assert changed_by("tests/on_airflow/durable_pod/test_a.py") == {"durable_pod"}
    assert changed_by("tests/apiserver/launch_guard/test_a.py") == {"apiserver-launch_guard"}
    assert changed_by("tests/unit/test_a.py") == {"unit"}


def test_programs_are_there_before_the_tests_run(kept, monkeypatch):
    suite = Suite("a", "tests/a", (), programs=("etcd", "kube-apiserver"))
    monkeypatch.setattr(matrix.tree, "suites", lambda: (suite,))

    def program(name):
        kept.append(name)
        raise RuntimeError("no Go")

    monkeypatch.setattr(matrix.apiserver, "program", program)
    assert matrix.run(pairs.MAIN_PAIR).passed
    assert kept == ["etcd", "kube-apiserver", "tests/a"]


def test_a_pair_that_cannot_be_made_is_not_run_and_not_passed(kept, monkeypatch):
    def missing(pair):
        raise environment.MissingError("no Python 3.13")

    monkeypatch.setattr(matrix, "ensure", missing)
    result = matrix.run(pairs.MAIN_PAIR)
    assert not result.passed
    assert result.outcome == "NOT RUN: no Python 3.13"
    assert kept == []


def test_the_page_counts_skips_by_reason():
    results = [
        Result("3.3.2+10.25.0+py3.11", "d", 0, 100, 0, {}, 61.2, "abc"),
        Result("3.0.6+10.8.2+py3.11", "d", 0, 90, 0, {"no store": 8, "a|b": 2}, 60.0, "abc"),
        Result("2.11.2+10.8.2+py3.11", "d", 1, 80, 3, {"no store": 9}, 60.0, "abc"),
        Result("3.2.2+10.19.0+py3.12", "d", note="no Python"),
    ]
    page = matrix_page.page(results)
    assert "| 3.3.2 | 10.25.0 | 3.11 | passed | 100 | 0 | 0 | 61 | abc |" in page
    assert "| 2.11.2 | 10.8.2 | 3.11 | **failed** | 80 | 3 | 9 | 60 | abc |" in page
    assert "| 3.2.2 | 10.19.0 | 3.12 | no Python | 0 | 0 | 0 | 0 |  |" in page
    assert "| no store | 8 to 9 | 2 |" in page
    assert "| a/b | 2 | 1 |" in page
