# SPDX-License-Identifier: Apache-2.0
"""The token that a workload carries to the execution API: until when it is good, and a new one."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.entry import Entry


class Renewal(Protocol):
    """Tells expired tokens and gives new ones; no method raises."""

    def expired(self, entry: Entry) -> bool:
        """Whether the entry's token is no longer good; False where that cannot be told."""

    def renew(self, entry: Entry) -> Any | None:
        """Return a copy of the entry's job with a new token, None where none can be made."""

    def refresh(self, entry: Entry) -> None:
        """Give the entry's job a new token in place where the old one would expire before it is used."""


class NoRenewal:
    """For workloads without a token."""

    def expired(self, entry: Entry) -> bool:  # noqa: ARG002 - the protocol's signature
        """Nothing expires."""
        return False

    def renew(self, entry: Entry) -> Any | None:  # noqa: ARG002 - the protocol's signature
        """Nothing is renewed."""
        return None

    def refresh(self, entry: Entry) -> None:
        """Nothing is renewed."""


NO_RENEWAL = NoRenewal()


def claims(token: Any) -> dict[str, Any]:
    """Read the claims of a JWT without its key, {} for anything that is none. Never raises.

    They are only compared with the clock: whether the token is genuine is the API server's question.
    """
    if not isinstance(token, str):
        return {}
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, payload, signature (RFC 7515)
        return {}
    try:
        payload = parts[1].encode("ascii")
        found = json.loads(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def moment(value: Any) -> float | None:
    """Return a claim that is a time (RFC 7519: seconds since the epoch), None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def expires_at(token: Any) -> float | None:
    """Return when a token expires, in seconds since the epoch; None where it does not say."""
    return moment(claims(token).get("exp"))


def lifetime(token: Any) -> float | None:
    """Return for how many seconds a token was issued; None where it does not say."""
    found = claims(token)
    issued, expires = moment(found.get("iat")), moment(found.get("exp"))
    return None if issued is None or expires is None else expires - issued
