# SPDX-License-Identifier: Apache-2.0
"""A worker pod's name, derived from its launch instead of drawn at random.

The provider asks one function of its module for a name while it builds a pod, before ``pod_override``
and the mutation hook have their say. That function is wrapped once per process: inside ``deriving`` it
gives the launch's name, outside it is the provider's own.
"""

from __future__ import annotations

import functools
import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LENGTH = 63
"""Longest name that is a host name too (RFC 1123 label): the worker reports its host name to Airflow."""

SEAM = "create_unique_id"
_FALLBACK_SLUG = "task"
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")


def derive(slug: str, digest: str, number: int = 1) -> str:
    """Return ``<slug>-<digest>``, from the second name of a launch on ``<slug>-<digest>-<number>``.

    ``slug`` is cut so that at most 63 characters result, and made a valid start of a name (lower case,
    digits, single dashes); an empty one becomes "task". Deterministic, never raises.
    """
    suffix = f"-{digest}" if number == 1 else f"-{digest}-{number}"
    plain = _NOT_ALLOWED.sub("-", slug.lower()).strip("-") or _FALLBACK_SLUG
    return plain[: MAX_LENGTH - len(suffix)].rstrip("-") + suffix


@dataclass
class Derivation:
    """What the provider is to call the pod that is being built; ``name`` is "" until it has asked."""

    digest: str
    number: int = 1
    name: str = ""


_current: ContextVar[Derivation | None] = ContextVar("steadfast_pod_name", default=None)


@contextmanager
def deriving(wanted: Derivation) -> Iterator[None]:
    """Within the block, the pod that the provider builds gets a derived name, told in ``wanted.name``."""
    token = _current.set(wanted)
    try:
        yield
    finally:
        _current.reset(token)


def module_of(launcher: type[Any]) -> Any | None:
    """Return the module with the naming function that a launcher of this class uses; None without one."""
    modules = (sys.modules.get(cls.__module__) for cls in launcher.__mro__)
    return next((module for module in modules if hasattr(module, SEAM)), None)


def install(module: Any) -> bool:
    """Wrap the naming function of the provider's module; False where there is none. Idempotent."""
    native = getattr(module, SEAM, None)
    if native is None:
        return False
    if not isinstance(native, _Naming):
        setattr(module, SEAM, _Naming(native))
    return True


class _Naming:
    """The provider's naming function, and within ``deriving`` the launch's."""

    def __init__(self, native: Callable[..., str]) -> None:
        self._native = native
        functools.update_wrapper(self, native)

    def __call__(self, dag_id: str | None = None, task_id: str | None = None, **options: Any) -> str:
        wanted = _current.get()
        if wanted is None:
            return self._native(dag_id, task_id, **options)
        slug = self._native(dag_id, task_id, **{**options, "unique": False})  # the readable part alone
        wanted.name = derive(slug, wanted.digest, wanted.number)
        return wanted.name
