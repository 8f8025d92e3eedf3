# SPDX-License-Identifier: Apache-2.0
"""What an API server's answer to a create, or the lack of one, says about the pod. Pure.

The clients of both creation paths (kubernetes, kubernetes_asyncio) raise errors with ``status``, ``body``
and ``headers``; their transports (urllib3, aiohttp) raise their own where no answer came.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["exists", "unknown", "throttled", "refused", "final"]

LONGEST_PAUSE = 300.0
"""Most seconds of a ``Retry-After`` that are waited for."""

DEFAULT_PAUSE = 1.0
"""Seconds to pause after a 429 that names none."""

_LONGEST_TEXT = 300
_UNKNOWN = frozenset({0, 500, 502, 503, 504})
_TRANSPORTS = (("urllib3.exceptions", "HTTPError"), ("aiohttp", "ClientError"))


@dataclass(frozen=True)
class Answer:
    """What is known after a create that did not succeed.

    ``exists``: a pod of that name is there. ``unknown``: the pod may have been stored, or may yet be.
    ``throttled``: not stored, the server wants a pause. ``refused``: not stored, may be allowed later
    (quota). ``final``: not stored, and asking again would not help. ``pause`` is for how many seconds
    the server asked to be left alone, None where it did not.
    """

    kind: Kind
    pause: float | None = None


def classify(error: Exception, *, sent: bool) -> Answer:
    """Return what ``error`` says; ``sent`` is whether the create may have been sent. Never raises."""
    status = getattr(error, "status", None)
    if hasattr(error, "body") and hasattr(error, "headers"):
        return _of_status(status or 0, error)
    return Answer("unknown" if sent and _is_transport(error) else "final")


def is_servers(error: Exception) -> bool:
    """Whether an error is the API server's answer or its lack of one, and not a fault of the caller."""
    return (hasattr(error, "body") and hasattr(error, "headers")) or _is_transport(error)


def describe(error: Exception) -> str:
    """Say an error in one line for the log: the clients' own text is long, or nothing but a name."""
    status = getattr(error, "status", None)
    if not (hasattr(error, "body") and hasattr(error, "headers")):
        return repr(error)
    said = _status_object(error)[1] or str(getattr(error, "reason", None) or "")
    return " ".join(f"{status or 'no answer'} {said}".split())[:_LONGEST_TEXT]


def _of_status(status: int, error: Any) -> Answer:
    pause = _retry_after(error)
    if status == http.HTTPStatus.TOO_MANY_REQUESTS:
        return Answer("throttled", DEFAULT_PAUSE if pause is None else pause)
    if status in _UNKNOWN:
        return Answer("unknown", pause)
    reason, message = _status_object(error)
    if status == http.HTTPStatus.CONFLICT:
        if reason == "AlreadyExists" or "already exists" in message:
            return Answer("exists")
        if "object has been modified" in message:
            return Answer("refused")
    if status == http.HTTPStatus.FORBIDDEN and "exceeded quota" in message:
        return Answer("refused")
    return Answer("final")


def _status_object(error: Any) -> tuple[str, str]:
    """The reason and message of the API's Status object; a body that is none is all message."""
    body = error.body
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    try:
        found = json.loads(text)
        return str(found.get("reason", "")), str(found.get("message", ""))
    except (ValueError, AttributeError):
        return "", text


def _retry_after(error: Any) -> float | None:
    """Seconds of ``Retry-After``, bounded; None without the header or for one that is no number."""
    try:
        value = float(str((error.headers or {}).get("Retry-After")))
    except (TypeError, ValueError, AttributeError):
        return None
    return min(max(value, 0.0), LONGEST_PAUSE) if value == value else None  # noqa: PLR0124 - not a NaN


def _is_transport(error: Exception) -> bool:
    if isinstance(error, (OSError, http.client.HTTPException, asyncio.TimeoutError)):
        return True
    for module, name in _TRANSPORTS:
        with contextlib.suppress(AttributeError, TypeError):
            if isinstance(error, getattr(sys.modules.get(module), name)):
                return True
    return False
