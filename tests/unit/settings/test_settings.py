# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import pytest

from airflow_steadfast import settings
from airflow_steadfast.settings import Settings, read


class Conf:
    """Airflow's ``conf`` with the given values."""

    def __init__(self, values=(), scheduler=()):
        self.sections = {"steadfast": dict(values), "scheduler": dict(scheduler)}

    def get(self, section, key, fallback=None):
        return self.sections[section].get(key, fallback)

    def getsection(self, section):
        return self.sections.get(section)


def test_nothing_set_is_all_defaults_and_no_problem():
    assert read(Conf(), {}) == (Settings(), [])


def test_values_are_typed():
    chosen, problems = read(
        Conf({"launch_guard": "Observe", "guard_max_hold": "30", "patch_kpo": "true", "handoff_dir": "/x"}),
        {},
    )
    assert problems == []
    assert (chosen.launch_guard, chosen.guard_max_hold, chosen.patch_kpo, chosen.handoff_dir) == (
        "observe",
        30.0,
        True,
        "/x",
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launch_guard", "on"),
        ("guard_max_hold", "-1"),
        ("guard_max_hold", "a minute"),
        ("guard_max_hold", "nan"),
        ("guard_check_timeout", "0"),
        ("guard_recheck_age", "inf"),
        ("handoff_dir", "relative/folder"),
        ("patch_kpo", "perhaps"),
    ],
)
def test_a_wrong_value_is_one_problem_that_names_its_key_and_the_default_is_used(key, value):
    chosen, problems = read(Conf({key: value}), {})
    assert getattr(chosen, key) == getattr(Settings(), key)
    (problem,) = problems
    assert f"[steadfast] {key}" in problem
    assert "default" in problem


def test_other_settings_of_a_wrong_section_keep_their_values():
    chosen, problems = read(Conf({"patch_kpo": "perhaps", "guard_max_hold": "5"}), {})
    assert len(problems) == 1
    assert chosen.guard_max_hold == 5


def test_an_unknown_key_is_named_from_the_file_and_from_the_environment():
    _, problems = read(
        Conf({"guard_hold": "5"}), {"AIRFLOW__STEADFAST__LAUNCHGUARD": "off", "AIRFLOW__CORE__X": "1"}
    )
    assert len(problems) == 2
    assert "guard_hold" in problems[0]
    assert "launchguard" in problems[1]


@pytest.mark.parametrize(
    ("hold", "timeout", "used"), [("700", "600", 60), ("60", "60", 30), (None, "30", 15), ("50", "600", 50)]
)
def test_a_hold_must_end_before_the_scheduler_gives_up(hold, timeout, used):
    chosen, problems = read(
        Conf({"guard_max_hold": hold} if hold else {}, {"task_queued_timeout": timeout}), {}
    )
    assert chosen.guard_max_hold == used
    assert len(problems) == (hold != "50")
    for problem in problems:
        assert "guard_max_hold" in problem
        assert "task_queued_timeout" in problem


def test_a_conf_that_raises_costs_a_problem_per_setting_and_no_exception():
    class Broken:
        def get(self, *_, **__):
            raise RuntimeError("no secrets backend")

    chosen, problems = read(Broken(), {})
    assert chosen == Settings()
    assert len(problems) == len(dataclasses.fields(Settings))


def test_the_table_names_every_setting_with_unit_default_scope_and_meaning():
    lines = settings.markdown(settings.table()).splitlines()
    assert len(lines) == 2 + len(dataclasses.fields(Settings))
    assert all(line.count(" | ") >= 5 for line in lines[2:])
