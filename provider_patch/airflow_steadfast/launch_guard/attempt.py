# SPDX-License-Identifier: Apache-2.0
"""How far the creation of one launch's pod has got, over as many loops as it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_steadfast.launch_guard.naming import Derivation

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId, PodRef

LONGEST_DELAY = 10.0
"""Most seconds between two tries after an unknown outcome: 0, 1, 2, 4, 8, then always 10."""


@dataclass(eq=False)
class Attempt:
    """The creation of the pod of one launch.

    ``number`` is which of its derived names is tried, ``naming`` that name, and ``request`` the pod that
    is being created, None until it is built; ``response`` the server's pod, where the creation path
    tells it. ``in_doubt`` are pods that may exist and that nobody has seen. ``waited`` is true once a pod
    on its way out held the name. ``deadline`` (queue's clock) ends the budget, None before the first
    failure. ``silent`` is true until a failure has been logged.
    """

    entry: Entry
    launch_id: LaunchId
    number: int = 1
    naming: Derivation = field(init=False)
    request: Any = None
    response: Any = None
    in_doubt: list[PodRef] = field(default_factory=list)
    waited: bool = False
    failures: int = 0
    deadline: float | None = None
    silent: bool = True

    @property
    def named_by_us(self) -> bool:
        """Whether the pod has the derived name, not one that ``pod_override`` or the hook forced on it."""
        name = self.naming.name
        return bool(name) and self.request is not None and self.request.metadata.name == name

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start another create: nothing is built yet."""
        self.naming = Derivation(self.launch_id.digest(), self.number)
        self.request = self.response = None

    def spend(self, now: float, budget: float) -> bool:
        """Note a failure; whether the budget (seconds from the first failure) allows another try."""
        self.failures += 1
        if self.deadline is None:
            self.deadline = now + budget
        return now < self.deadline

    def extend(self, seconds: float) -> None:
        """Leave a pause that the server asked for out of the budget."""
        if self.deadline is not None:
            self.deadline += seconds

    def delay(self) -> float:
        """Seconds until the next try after an unknown outcome; the first is due in the next loop."""
        return 0.0 if self.failures <= 1 else min(LONGEST_DELAY, 2.0 ** (self.failures - 2))


class Attempts:
    """The attempt of each entry; a new launch of the same entry (a requeue) gets a new one.

    An attempt refers to its entry, so the entry keeps it: a map by entry, a weak one too, would never let
    go of either, nor of the pod that was asked for.
    """

    def begin(self, entry: Entry) -> Attempt | None:
        """Return the attempt at the entry's launch, ready for a create; None for no comparable launch."""
        launch_id = entry.assign_launch_id()
        if launch_id is None:
            return None
        attempt = entry.attempt
        if attempt is None or attempt.launch_id != launch_id:
            # a renewed copy comes with the pod that was in doubt for the original
            attempt = entry.attempt = Attempt(entry, launch_id, in_doubt=[entry.pod] if entry.pod else [])
        attempt.begin()
        return attempt

    def of(self, entry: Entry | None) -> Attempt | None:
        """Return the attempt that was begun for the entry and is not over."""
        return None if entry is None else entry.attempt

    def end(self, attempt: Attempt) -> None:
        """Let go of an attempt whose pod is there."""
        if attempt.entry.attempt is attempt:
            attempt.entry.attempt = None
