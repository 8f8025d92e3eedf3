# SPDX-License-Identifier: Apache-2.0
"""The identity of one launch, and which launches an executor's key stands for.

A key of the executor (Dag, task, run, try, map index; below Airflow 3.4) outlives a task instance: a
run that is deleted and triggered again under its run id has the same keys with other ids, and a
deferred or rescheduled task instance comes back under its id, its try and its key. So what is kept
under a key may be forgotten only together with the launch that it belongs to.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import timezone
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable
    from datetime import datetime

    from airflow_steadfast.launch_guard.entry import Entry

PRUNE_ABOVE = 1_000
"""Keys of the book beyond twice the live ones that make it look for dead ones."""

DIGEST_LENGTH = 10
"""Characters of a digest: 50 bits, so that 10,000 launches a day for a year collide at odds of 1 to 170."""


@dataclass(frozen=True)
class Launch:
    """The order: what one queued workload was made for, a task instance and a try of it.

    ``ti_id`` is the task instance's immutable id, on Airflow 2 its primary key, as text. ``key`` is its
    Dag, task, run, try and map index, as the audit log wants it. ``row_key`` is what the snapshot looks
    up: the id, or the primary key as a tuple. ``token_expires_at`` is when the workload's token expires,
    in seconds since the epoch, None where it has none or none that can be read.
    """

    ti_id: str
    try_number: int
    key: Any
    row_key: Any = None
    token_expires_at: float | None = None

    def __post_init__(self) -> None:
        if self.row_key is None:
            object.__setattr__(self, "row_key", self.ti_id)

    @property
    def identity(self) -> tuple[str, int]:
        """Equal for two copies of the same launch order, whichever of them is newer."""
        return self.ti_id, self.try_number

    def __str__(self) -> str:
        key = self.key
        return (
            f"dag_id={key.dag_id} task_id={key.task_id} run_id={key.run_id} map_index={key.map_index} "
            f"try_number={self.try_number} task_instance_id={self.ti_id}"
        )


@dataclass(frozen=True)
class LaunchId:
    """The identity of one launch: what its pod's name is made from and its pod's annotation says.

    ``queued_dttm`` is the row's, as the check read it: a deferred or rescheduled task instance comes
    back with another one. ``requeue`` counts launches of the same order after a pod that died before
    its task began. ``nonce`` is "" after a verdict, and random for a launch made without one.
    """

    ti_id: str
    try_number: int
    queued_dttm: datetime | None
    requeue: int = 0
    nonce: str = ""

    def text(self) -> str:
        """Return the value of the pod's launch annotation: one line, the same in every process."""
        queued = "-"
        if self.queued_dttm is not None:
            moment = self.queued_dttm
            if moment.tzinfo is not None:
                moment = moment.astimezone(timezone.utc)
            queued = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        parts = [self.ti_id, f"try={self.try_number}", f"queued={queued}", f"requeue={self.requeue}"]
        if self.nonce:
            parts.append(f"nonce={self.nonce}")
        return " ".join(" ".join(parts).split())

    def digest(self) -> str:
        """Return ten characters of a-z and 2-7, from SHA-256 of the text: the suffix of the pod's name."""
        hashed = hashlib.sha256(self.text().encode()).digest()
        return base64.b32encode(hashed).decode().lower()[:DIGEST_LENGTH]


class PodRef(NamedTuple):
    """Where a pod is; the executor's watcher tells no more of it."""

    namespace: str
    name: str


class LaunchBook:
    """The launches of each executor key, oldest first; the last one is the key's current launch.

    Entries are compared as objects, because equal jobs may be two launches. No method raises.
    """

    def __init__(self) -> None:
        self._launches: dict[Hashable, list[Entry]] = {}

    def begin(self, key: Hashable, entry: Entry) -> None:
        """Make ``entry`` the current launch of ``key``."""
        launches = self._launches.setdefault(key, [])
        launches[:] = [one for one in launches if one is not entry]
        launches.append(entry)

    def current(self, key: Hashable) -> Entry | None:
        """Return the launch that ``key`` stands for, None where it stands for none that is known."""
        launches = self._launches.get(key)
        return launches[-1] if launches else None

    def all(self, key: Hashable) -> tuple[Entry, ...]:
        """Return the launches of ``key``, oldest first."""
        return tuple(self._launches.get(key, ()))

    def newest(self, key: Hashable, matches: Callable[[Entry], bool]) -> Entry | None:
        """Return the newest launch of ``key`` that ``matches``, None if there is none."""
        return next((one for one in reversed(self._launches.get(key, ())) if matches(one)), None)

    def of_job(self, key: Hashable, job: Any) -> Entry | None:
        """Return the newest launch of this very job object."""
        return self.newest(key, lambda one: one.job is job)

    def of_pod(self, key: Hashable, ref: PodRef) -> Entry | None:
        """Return the newest launch of ``key`` that made, or may have made, this pod."""
        return self.newest(key, lambda one: ref == one.pod or ref in one.former_pods)

    def has_pod(self, ref: PodRef) -> bool:
        """Whether any launch of the book made, or may have made, this pod; looks at all of them."""
        return any(one.pod == ref for launches in self._launches.values() for one in launches)

    def forget(self, key: Hashable, entry: Entry) -> None:
        """Take the launch out of the book; an older one of its key is current again. Idempotent."""
        left = [one for one in self._launches.get(key, ()) if one is not entry]
        if left:
            self._launches[key] = left
        else:
            self._launches.pop(key, None)

    def prune(self, live: Callable[[], Collection[Hashable]], live_count: int) -> None:
        """Forget keys that are neither running nor queued, once there are many; ``live`` names the rest."""
        if len(self._launches) <= 2 * live_count + PRUNE_ABOVE:
            return
        kept = live()
        self._launches = {key: launches for key, launches in self._launches.items() if key in kept}
