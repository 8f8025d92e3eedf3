# SPDX-License-Identifier: Apache-2.0
"""The SELECT of the check, and a row of ``task_instance`` as the check needs it.

A task instance is looked up by its primary key: from Airflow 3 on its id, before that its Dag, task, run
and map index. Parameters are coerced to the column's own type and the column never is, so that each
look-up is one of the primary-key index.
"""

from __future__ import annotations

import functools
import re
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime


_CANONICAL = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Row(NamedTuple):
    """A task instance as the check needs it; ``state`` is None for one without a state."""

    state: str | None
    try_number: int
    queued_by_job_id: int | None
    queued_dttm: datetime | None


def query(keys: Iterable[Any], *, array: bool = False) -> Any:
    """Return the SELECT for these row keys (``Launch.row_key``), as a SQLAlchemy statement.

    A key that is none of this Airflow's kind matches no row. ``array`` is for PostgreSQL alone: where the
    primary key is one column, the keys are one parameter. That halves the time of a check, most of which
    is SQLAlchemy's for a parameter and a text of their own for each key.
    """
    from airflow.models.taskinstance import TaskInstance

    primary_key = _primary_key(TaskInstance)
    if array and len(primary_key) == 1:
        return _array_query().params(keys=row_texts(keys))
    primary_key, found = by_primary_key(keys)
    return _select(primary_key, found)


def array_text(dialect: Any) -> str:
    """Return the SELECT with ``array`` as the driver's own text, whose one parameter is named ``keys``.

    Empty where the primary key is more than one column. SQLAlchemy's way from a statement to its rows takes
    as long as the server does for a few keys.
    """
    from airflow.models.taskinstance import TaskInstance

    return str(_array_query().compile(dialect=dialect)) if len(_primary_key(TaskInstance)) == 1 else ""


def row_texts(keys: Iterable[Any]) -> list[str]:
    """Return the value of ``keys`` for these row keys: ids as PostgreSQL writes them."""
    return [text for key in keys if (text := _as_text(key)) is not None]


@functools.cache
def _array_query() -> Any:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import any_, bindparam, cast, type_coerce
    from sqlalchemy.dialects.postgresql import ARRAY, UUID

    (column,) = _primary_key(TaskInstance)
    text = UUID(as_uuid=False)
    # the cast is for SQLAlchemy 1.4, which would send an array of text
    found = column == any_(cast(bindparam("keys", type_=ARRAY(text)), ARRAY(text)))
    return _select((type_coerce(column, text),), _in_working_set(found))


def _as_text(key: Any) -> str | None:
    """Return an id as PostgreSQL writes it; None for one that is no UUID."""
    if isinstance(key, str) and _CANONICAL.fullmatch(key):
        return key
    try:
        return str(uuid.UUID(key))
    except (ValueError, TypeError, AttributeError):
        return None


def _select(primary_key: tuple[Any, ...], found: Any) -> Any:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    return select(
        *primary_key,
        TaskInstance.state,
        TaskInstance.try_number,
        TaskInstance.queued_by_job_id,
        TaskInstance.queued_dttm,
    ).where(found)


def by_primary_key(keys: Iterable[Any]) -> tuple[tuple[Any, ...], Any]:
    """Return the columns of the primary key, and the condition that a row has one of these row keys."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import tuple_

    primary_key = _primary_key(TaskInstance)
    if len(primary_key) == 1:
        values = [_coerced(primary_key[0], key) for key in keys]
        found = primary_key[0].in_([value for value in values if value is not None])
    else:
        found = tuple_(*primary_key).in_([key for key in keys if isinstance(key, tuple)])
    return primary_key, _in_working_set(found)


def _in_working_set(found: Any) -> Any:
    """From Airflow 3.4 on, rows of past tries stay in the table; they are not meant."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_

    return and_(found, TaskInstance.working_set.is_(True)) if hasattr(TaskInstance, "working_set") else found


def row_key(primary_key: Sequence[Any]) -> Any:
    """Return the row key of a primary key as the database gives it."""
    return str(primary_key[0]) if len(primary_key) == 1 else tuple(primary_key)


def by_key(result: Iterable[Any]) -> Iterator[tuple[Any, Row]]:
    """Yield the row key and the row of each line of the SELECT's result."""
    for *primary_key, state, try_number, job_id, queued_dttm in result:
        plain = None if state is None else str(getattr(state, "value", state))
        yield row_key(primary_key), Row(plain, int(try_number), job_id, queued_dttm)


def is_comparable(key: Any) -> bool:
    """Whether a row can have this key: a malformed id has no value in a column of UUIDs, and breaks a batch.

    Such ids were made by a faulty migration of MySQL databases to Airflow 3.0.
    """
    from airflow.models.taskinstance import TaskInstance

    primary_key = _primary_key(TaskInstance)
    if len(primary_key) > 1 or isinstance(key, tuple):
        return isinstance(key, tuple) and len(key) == len(primary_key)
    return _coerced(primary_key[0], key) is not None


def _primary_key(model: Any) -> tuple[Any, ...]:
    if hasattr(model, "id"):
        return (model.id,)
    return model.dag_id, model.task_id, model.run_id, model.map_index


def _coerced(column: Any, text: Any) -> Any:
    """Return an id as the column's own type; None for one that is no UUID.

    Where the column holds text (Airflow 3.0 and 3.1, but not on PostgreSQL) the text stays as it is.
    """
    try:
        python_type = column.type.python_type
    except NotImplementedError:
        python_type = str
    try:
        uuid.UUID(text)
        return python_type(text)
    except (ValueError, TypeError, AttributeError):
        return None
