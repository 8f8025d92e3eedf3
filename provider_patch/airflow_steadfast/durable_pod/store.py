# SPDX-License-Identifier: Apache-2.0
"""Airflow's task state store, with its answers told apart.

The store is reached through the task's supervisor, which has retried a 5xx or a lost connection by
itself (``[workers] execution_api_retries``) before an error gets here. One such call can take half a
minute, so after one without an answer the store is left alone for PAUSE_SECONDS.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

PAUSE_SECONDS = 60.0

_FORBIDDEN = 403
_NOT_FOUND = 404


class StoreError(Exception):
    """A call of the store that did not do what was asked."""


class StoreUnavailableError(StoreError):
    """No answer, a 5xx, or no store in this Airflow: says nothing about the task instance."""


class StoreForbiddenError(StoreError):
    """403: this task's token may not use the store."""


class TaskInstanceGoneError(StoreError):
    """404 to a write: the server no longer knows this task instance, another has taken its place."""


class Store:
    """One task instance's store. ``accessor`` is what the task context holds as ``task_state_store``."""

    def __init__(self, accessor: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._accessor = accessor
        self._clock = clock
        self._paused_until = float("-inf")

    def get(self, key: str) -> Any:
        """Return the value, or None where there is none.

        None also for a task instance that the server does not know: Airflow's client answers so, only
        a write tells. Raises StoreUnavailableError or StoreForbiddenError.
        """
        return self._call(lambda: self._accessor.get(key))

    def set(self, key: str, value: Any, retention: timedelta | None = None) -> None:
        """Write or overwrite a value; ``retention`` None is the deployment's default. Raises StoreError."""
        keywords = {} if retention is None else {"retention": retention}
        self._call(lambda: self._accessor.set(key, value, **keywords))

    def resume(self) -> None:
        """End a pause early: the try is over and the last chance to write is now."""
        self._paused_until = float("-inf")

    def _call(self, action: Callable[[], Any]) -> Any:
        if self._clock() < self._paused_until:
            raise StoreUnavailableError("the task state store did not answer a short while ago")
        try:
            return action()
        except Exception as error:
            told = _tell(error)
            if isinstance(told, StoreUnavailableError):
                self._paused_until = self._clock() + PAUSE_SECONDS
            raise told from error


class NoStore(Store):
    """Where this Airflow has none: reads say "nothing stored", writes are dropped."""

    def __init__(self) -> None:
        super().__init__(None)

    def get(self, key: str) -> Any:  # noqa: ARG002 - the store's signature
        """Return None."""
        return None

    def set(self, key: str, value: Any, retention: timedelta | None = None) -> None:
        """Drop the value."""


def _tell(error: Exception) -> StoreError:
    """Return what an error of the store means.

    A 404 without the body's ``reason`` is a server that has no such route: older than the worker, and
    no statement about the task instance.
    """
    status, body = _answer(error)
    if status == _FORBIDDEN:
        return StoreForbiddenError(str(error))
    inner = body.get("detail") if isinstance(body, dict) else None
    if status == _NOT_FOUND and isinstance(inner, dict) and inner.get("reason") == "not_found":
        return TaskInstanceGoneError(str(error))
    return StoreUnavailableError(f"{type(error).__name__}: {error}")


def _answer(error: Exception) -> tuple[Any, Any]:
    """Return the server's status and decoded body, None for each that is unknown.

    The supervisor hands over ``error.detail = {"status_code", "message", "detail": <the body>}`` (task
    SDK 1.3); where it shares the task's process, as in ``dag.test()``, the HTTP error itself arrives.
    """
    detail = getattr(getattr(error, "error", None), "detail", None)
    if isinstance(detail, dict):
        return detail.get("status_code"), detail.get("detail")
    response = getattr(error, "response", None)
    try:
        return getattr(response, "status_code", None), None if response is None else response.json()
    except Exception:
        return getattr(response, "status_code", None), None
