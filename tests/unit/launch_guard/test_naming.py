# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_steadfast.launch_guard import naming

DIGEST = "0a1b2c3d4e"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@given(st.text(max_size=200), st.integers(min_value=1, max_value=99))
def test_every_name_is_a_host_name_that_ends_in_its_digest_and_number(slug, number):
    name = naming.derive(slug, DIGEST, number)
    assert LABEL.fullmatch(name)
    assert len(name) <= 63
    assert name.endswith(DIGEST if number == 1 else f"{DIGEST}-{number}")
    assert naming.derive(slug, DIGEST, number) == name


@pytest.mark.parametrize(
    ("slug", "expected"),
    [
        ("dag-task", f"dag-task-{DIGEST}"),
        ("Dag.a_b--c", f"dag-a-b-c-{DIGEST}"),
        ("", f"task-{DIGEST}"),
        ("日本", f"task-{DIGEST}"),
        ("a" * 52 + "-b", "a" * 52 + f"-{DIGEST}"),
        ("a" * 51 + "-b", "a" * 51 + f"-{DIGEST}"),
    ],
)
def test_names(slug, expected):
    assert naming.derive(slug, DIGEST) == expected


def provider():
    calls = []

    def create_unique_id(dag_id=None, task_id=None, *, max_length=63, unique=True):
        calls.append(unique)
        return f"{dag_id}-{task_id}" + ("-random" if unique else "")

    return SimpleNamespace(create_unique_id=create_unique_id, calls=calls)


def test_only_a_pod_built_for_a_launch_gets_a_derived_name():
    module = provider()
    assert naming.install(module)
    assert module.create_unique_id("dag", "task") == "dag-task-random"
    wanted = naming.Derivation(DIGEST, 2)
    with naming.deriving(wanted):
        assert wanted.name == ""
        assert module.create_unique_id("dag", "task") == f"dag-task-{DIGEST}-2" == wanted.name
    assert module.create_unique_id("dag", "task") == "dag-task-random"
    assert module.calls == [True, False, True]


def test_a_failed_build_leaves_no_name_behind():
    module = provider()
    naming.install(module)
    with pytest.raises(RuntimeError), naming.deriving(naming.Derivation(DIGEST)):
        raise RuntimeError
    assert module.create_unique_id("dag", "task") == "dag-task-random"


def test_installed_twice_is_wrapped_once():
    module = provider()
    naming.install(module)
    wrapped = module.create_unique_id
    assert naming.install(module)
    assert module.create_unique_id is wrapped


def test_a_provider_without_the_function_is_left_alone():
    assert not naming.install(SimpleNamespace())
