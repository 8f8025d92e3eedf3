# SPDX-License-Identifier: Apache-2.0
"""The SELECT as MySQL would get it: the primary key's own type on both sides, no cast on the column.

There is no MySQL server here: the statement is compiled by SQLAlchemy's dialect and read.
"""

from __future__ import annotations

import re

import pytest
from airflow import __version__ as airflow_version
from airflow.models.taskinstance import TaskInstance
from sqlalchemy.dialects import mysql

from airflow_steadfast.launch_guard import rows, stranded
from tests.support import airflow_lines

pytestmark = [pytest.mark.airflow]

IDS = ("01a22f94-0893-77aa-a329-7482c25491a7", "09978083-250e-4274-9f58-058a1034a8bf")
KEYS = IDS if airflow_lines.HAS_WORKLOADS else (("dag", "task", "run", -1), ("dag", "task", "it's", 7))


def compiled(statement):
    text = statement.compile(
        dialect=mysql.dialect(), compile_kwargs={"render_postcompile": True, "literal_binds": True}
    )
    return " ".join(str(text).split())


def kind(column):
    return mysql.dialect().type_compiler.process(column.type)


def test_the_columns_type_is_the_one_this_airflow_made():
    if not airflow_lines.HAS_WORKLOADS:
        assert not hasattr(TaskInstance, "id")
    else:
        by_line = {"3.0": "VARCHAR(36)", "3.1": "VARCHAR(36)"}
        line = ".".join(airflow_version.split(".")[:2])
        assert kind(TaskInstance.id) == by_line.get(line, "CHAR(32)")


@pytest.mark.parametrize("query", [rows.query, stranded.query], ids=["check", "stranded"])
def test_ids_are_given_as_the_column_holds_them(query):
    sql = compiled(query(KEYS))
    if not airflow_lines.HAS_WORKLOADS:
        wanted = (
            "(task_instance.dag_id, task_instance.task_id, task_instance.run_id, task_instance.map_index) "
            "IN (('dag', 'task', 'run', -1), ('dag', 'task', 'it''s', 7))"
        )
    else:
        dashed = kind(TaskInstance.id) == "VARCHAR(36)"
        values = [ti_id if dashed else ti_id.replace("-", "") for ti_id in IDS]
        wanted = f"task_instance.id IN ({', '.join(repr(value) for value in values)})"
    assert wanted in sql


@pytest.mark.parametrize("query", [rows.query, stranded.query], ids=["check", "stranded"])
def test_no_function_and_no_cast_is_applied_to_a_column(query):
    sql = compiled(query(KEYS))
    assert "CAST" not in sql.upper()
    assert "CONVERT" not in sql.upper()
    where = sql[sql.index("WHERE") :]
    assert not re.search(r"\w\(\s*task_instance\.", where.replace("IN (", "IN ( "))


@pytest.mark.skipif(not airflow_lines.HAS_WORKLOADS, reason="Airflow 2 has no ids")
def test_a_malformed_id_is_left_out():
    """A migration of MySQL databases to 3.0 made such ids: one must not spoil the check of the others."""
    assert compiled(rows.query([*IDS, "not-a-uuid"])) == compiled(rows.query(IDS))
