# SPDX-License-Identifier: Apache-2.0
"""Requests to the Kubernetes API server that outlast a short outage, and never wait without bound.

The provider's own retries differ by version (none in 10.8, five attempts in 10.25, some 15 s) and
follow a Retry-After of any length. Here one budget in seconds holds for every request.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("airflow_steadfast.durable_pod")

OUTAGE_SECONDS = 120.0
"""How long a request is repeated: a rolling restart of an API server, or of the path to it."""

REQUEST_TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two bytes of an answer: a server that says nothing is an outage too."""

LONGEST_DELAY = 15.0
LONGEST_RETRY_AFTER = 60.0
"""What a Retry-After may ask for at most."""

TRANSIENT = frozenset({429, 500, 502, 503, 504})


def call(action: Callable[[], Any], what: str, *, seconds: float = OUTAGE_SECONDS) -> Any:
    """Return what ``action`` returns, repeating it through transient errors for up to ``seconds``.

    Raises the last error where the budget is used up, and any other error at once. ``what`` is for the
    log line.
    """
    deadline = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return action()
        except (ApiException, HTTPError) as error:  # noqa: PERF203 - each round is a request
            failures += 1
            if not is_transient(error) or not wait(error, failures, deadline, what):
                raise


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later: no answer, or one of the TRANSIENT."""
    if isinstance(error, ApiException):
        return error.status in TRANSIENT or not error.status
    return isinstance(error, HTTPError)


def wait(error: BaseException, failures: int, deadline: float, what: str) -> bool:
    """Sleep before the next attempt; return False at once where it would come after the deadline."""
    pause = delay(error, failures)
    if time.monotonic() + pause > deadline:
        return False
    log.warning("%s: %s; again in %.0f s", what, _brief(error), pause)
    time.sleep(pause)
    return True


def delay(error: BaseException, failures: int) -> float:
    """Return seconds to wait: what the server asks for, bounded, else doubling from 1."""
    asked = (getattr(error, "headers", None) or {}).get("Retry-After")
    if asked is not None and str(asked).isdigit():
        return min(float(asked), LONGEST_RETRY_AFTER)
    return min(2.0 ** (failures - 1), LONGEST_DELAY)


def _brief(error: BaseException) -> str:
    if isinstance(error, ApiException) and error.status:
        return f"{error.status} {error.reason}"
    return f"{type(error).__name__}: {error}"[:200]
