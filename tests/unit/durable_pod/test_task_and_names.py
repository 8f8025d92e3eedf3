# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_steadfast.durable_pod import naming, task
from airflow_steadfast.durable_pod.task import TASK_ANNOTATION, TaskKey

KEY = TaskKey("d", "r", "t", -1, 2, 3, deployment="one", ti_id="a")


def pod(annotation: str | None) -> Any:
    annotations = None if annotation is None else {TASK_ANNOTATION: annotation}
    return SimpleNamespace(metadata=SimpleNamespace(annotations=annotations))


def test_a_pod_made_for_another_try_of_the_task_is_ours() -> None:
    made = pod(replace(KEY, try_number=1, max_tries=9, ti_id="b").annotation())
    assert KEY.made(made)
    assert not KEY.is_foreign(made)


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, dag_id="x"),
        replace(KEY, run_id="x"),
        replace(KEY, task_id="x"),
        replace(KEY, map_index=0),
        replace(KEY, deployment="two"),
    ],
)
def test_a_pod_made_for_another_task_instance_or_airflow_is_foreign(other: TaskKey) -> None:
    assert KEY.is_foreign(pod(other.annotation()))
    assert not KEY.made(pod(other.annotation()))


@pytest.mark.parametrize("annotation", [None, "", "no JSON", "[]", "{}"])
def test_a_pod_that_says_nothing_is_neither(annotation: str | None) -> None:
    assert not KEY.made(pod(annotation))
    assert not KEY.is_foreign(pod(annotation))


def test_an_unknown_deployment_contradicts_nobody() -> None:
    assert KEY.made(pod(replace(KEY, deployment=None).annotation()))
    assert replace(KEY, deployment=None).made(pod(KEY.annotation()))


def test_a_try_that_the_retries_do_not_allow_for_is_a_clears() -> None:
    assert not replace(KEY, try_number=4, max_tries=3).is_beyond_its_retries
    assert replace(KEY, try_number=5, max_tries=3).is_beyond_its_retries
    assert not replace(KEY, try_number=5, max_tries=None).is_beyond_its_retries


def context(**fields: Any) -> dict[str, Any]:
    ti = SimpleNamespace(**{"dag_id": "d", "task_id": "t", "try_number": 2, "max_tries": 1, **fields})
    return {"ti": ti, "run_id": "r"}


def test_the_server_knows_best_whether_a_retry_follows() -> None:
    assert task.task_key(context()).will_retry is False
    assert task.task_key(context(max_tries=2)).will_retry is True
    assert task.task_key(context(max_tries=None)).will_retry is None
    told = SimpleNamespace(should_retry=True)
    assert task.task_key(context(_ti_context_from_server=told)).will_retry is True


def test_the_annotation_is_stable_json() -> None:
    assert json.loads(KEY.annotation())["map_index"] == -1
    assert KEY.annotation() == replace(KEY).annotation()


NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,90}[a-z0-9])?", fullmatch=True),
    st.integers(min_value=0, max_value=49),
)
def test_a_name_fits_a_host_name_and_differs_by_generation(given_name: str, generation: int) -> None:
    name = naming.pod_name(given_name, KEY, generation)
    assert len(name) <= naming.LONGEST
    assert NAME.fullmatch(name)
    assert name != naming.pod_name(given_name, KEY, generation + 1)


def test_every_try_works_out_the_same_name_whatever_the_random_suffix() -> None:
    later = replace(KEY, try_number=3, max_tries=7, ti_id="z")
    assert naming.pod_name("job-abcd1234", KEY, 0) == naming.pod_name("job-zyxw9876", later, 0)
    assert naming.pod_name("job-abcd1234", KEY, 0).startswith("job-")


@pytest.mark.parametrize("field", ["dag_id", "run_id", "task_id", "deployment"])
def test_other_tasks_have_other_names(field: str) -> None:
    assert naming.digest(KEY) != naming.digest(replace(KEY, **{field: "other"}))
    assert naming.digest(KEY) != naming.digest(replace(KEY, map_index=0))
