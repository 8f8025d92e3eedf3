# SPDX-License-Identifier: Apache-2.0
"""What a fault proxy may do to a request: the words that a test and the proxy's process share.

The bodies of the refusals are those of a real kube-apiserver, so that a client that reads them (a quota
is told from another 403 by its text alone) reads what it would read in production.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

Action = Literal["delay", "hold", "answer", "drop_reply", "reset", "stall"]

PODS = r"/namespaces/[^/]+/pods$"
"""Path of the collection of pods: POST creates one, GET lists or watches."""
POD = r"/namespaces/[^/]+/pods/[^/]+$"
"""Path of one pod."""


@dataclass(frozen=True)
class Fault:
    """Which requests, and what happens to them; the first added that matches is used, one per request.

    ``method``, ``path``, ``query`` and ``body`` are regular expressions that are searched (the method is
    matched whole), an empty one matches all. The first ``skip`` matching requests are spared, then
    ``count`` are hit (None: all).

    - delay: forwarded after ``seconds``.
    - hold: waits until the fault is removed, then goes on as if nothing had been; with ``forward`` it is
      the reply that waits, the request has been carried out.
    - answer: the client gets ``status``, ``headers`` and ``document``; with ``forward`` the server has
      carried the request out, without it never saw it.
    - drop_reply: forwarded, carried out, then the connection is closed without an answer, after
      ``seconds`` (longer than the client's read timeout: the client gives up first).
    - reset: never forwarded, the connection is reset (RST; Python's TLS tells it as an aborted connection).
    - stall: the reply's bytes (a watch) wait until the fault is removed; ``count`` does not apply.
    """

    action: Action
    method: str = "POST"
    path: str = PODS
    query: str = ""
    body: str = ""
    skip: int = 0
    count: int | None = None
    forward: bool = False
    seconds: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """One line of JSON; ``Fault(**json.loads(line))`` is the fault again."""
        return json.dumps(self.__dict__)


def _status(code: int, reason: str, message: str, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def refusal(code: int, *, retry_after: int | None = None, **more: Any) -> Fault:
    """A kube-apiserver's own answer with this status: 403 (quota), 409, 429, 500, 502, 503 or 504.

    ``more`` are fields of ``Fault``: ``count=1``, ``forward=True`` for a 504 whose pod was stored.
    Raises KeyError for another status.
    """
    pods = {"name": "worker", "kind": "pods"}
    documents = {
        403: _status(
            403,
            "Forbidden",
            'pods "worker" is forbidden: exceeded quota: workers, '
            "requested: pods=1, used: pods=10, limited: pods=10",
            pods,
        ),
        409: _status(409, "AlreadyExists", 'pods "worker" already exists', pods),
        429: _status(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
            {"retryAfterSeconds": retry_after or 1},
        ),
        500: _status(
            500,
            "InternalError",
            "Internal error occurred: etcdserver: request timed out",
            {"causes": [{"message": "etcdserver: request timed out"}]},
        ),
        502: {},
        503: _status(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
            {"retryAfterSeconds": retry_after or 1},
        ),
        504: _status(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
            {},
        ),
    }
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Fault("answer", status=code, headers=headers, document=documents[code], **more)


def answer_bytes(fault: Fault) -> bytes:
    """The HTTP/1.1 response of an "answer" fault."""
    body = json.dumps(fault.document).encode() if fault.document else b""
    try:
        phrase = HTTPStatus(fault.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {fault.status} {phrase}", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in fault.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
