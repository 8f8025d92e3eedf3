# SPDX-License-Identifier: Apache-2.0
"""The identity of a task's pod, as it is stored between tries. Pure.

The stored value is a superset of the provider's own ``pod_identifier`` value (``name`` and
``namespace``, providers 10.20 to 10.25), so either side can read what the other has written:

    {"name": "job-x7f3", "namespace": "etl",      # what the provider reads
     "uid": "…",                                  # absent until the server has answered the create
     "launch": "…", "try": 1, "max_tries": 2,     # which launch made it, and for which try
     "cluster": "…", "state": "created", "v": 1}
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

STATE_KEY = "pod_identifier"
"""The provider's own key: rolling the patch back finds the pod under it."""

SCHEMA_VERSION = 1

State = Literal["creating", "created", "finished"]
"""``creating``: the name is claimed, the create may or may not have reached the server.
``created``: the server has answered with a uid. ``finished``: a try has dealt with the pod's end."""

_STATES: tuple[State, ...] = ("creating", "created", "finished")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # RFC 1123, as Kubernetes checks names
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class MalformedIdentityError(ValueError):
    """The stored value is no identity; the message names the field and what was found there."""


@dataclass(frozen=True)
class Identity:
    """One pod of one task instance.

    ``uid`` is None for an intent and for a value of a provider that stores none; ``launch`` is None
    for the latter and for pods found by label that carry no launch annotation. ``max_tries`` as the
    task instance had it: it changes when a user clears the task.
    """

    name: str
    namespace: str
    uid: str | None = None
    launch: str | None = None
    try_number: int | None = None
    max_tries: int | None = None
    cluster: str | None = None
    state: State = "created"

    @property
    def is_intent(self) -> bool:
        """Whether the create's answer never got here, so the pod may not exist at all."""
        return self.uid is None and self.launch is not None

    def with_uid(self, uid: str) -> Identity:
        """Return this identity once the server has named the pod."""
        return replace(self, uid=uid, state="created")

    def as_finished(self) -> Identity:
        """Return this identity as one that no later try attaches to."""
        return replace(self, state="finished")

    def to_value(self) -> dict[str, Any]:
        """Return the value to store; JSON types only, unknown fields left out."""
        fields = {
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "launch": self.launch,
            "try": self.try_number,
            "max_tries": self.max_tries,
            "cluster": self.cluster,
            "state": self.state,
            "v": SCHEMA_VERSION,
        }
        return {key: value for key, value in fields.items() if value is not None}


def parse(value: object) -> Identity:
    """Return the identity of a stored value, the provider's two-field value included.

    Fields that this version does not know are ignored. Raises MalformedIdentityError for anything
    that could lead to a wrong pod.
    """
    if not isinstance(value, dict):
        raise MalformedIdentityError(f"the value is {type(value).__name__}, not an object")
    state = value.get("state", "created")
    if state not in _STATES:
        raise MalformedIdentityError(f"state is {state!r}, not one of {', '.join(_STATES)}")
    return Identity(
        name=_name(value, "name", _DNS_SUBDOMAIN),
        namespace=_name(value, "namespace", _DNS_LABEL),
        uid=_text(value, "uid"),
        launch=_text(value, "launch"),
        try_number=_number(value, "try"),
        max_tries=_number(value, "max_tries"),
        cluster=_text(value, "cluster"),
        state=cast("State", state),
    )


def cluster_fingerprint(host: str, certificate_authority: bytes | None) -> str:
    """Return a short, stable hash of an API server's address and CA: tells clusters apart, names neither."""
    digest = hashlib.sha256(host.rstrip("/").encode())
    digest.update(b"\0")
    digest.update(certificate_authority or b"")
    return digest.hexdigest()[:16]


def _name(value: dict[Any, Any], key: str, pattern: re.Pattern[str]) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not pattern.fullmatch(found):
        raise MalformedIdentityError(f"{key} is {found!r}, not a Kubernetes name")
    return found


def _text(value: dict[Any, Any], key: str) -> str | None:
    found = value.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not found:
        raise MalformedIdentityError(f"{key} is {found!r}, not a text")
    return found


def _number(value: dict[Any, Any], key: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int):
        raise MalformedIdentityError(f"{key} is {found!r}, not a whole number")
    return found
