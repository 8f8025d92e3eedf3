# SPDX-License-Identifier: Apache-2.0
"""``durable`` and ``reattach_on_restart``: one meaning on every Airflow and provider version.

============================  ==============================================================
given                         means
============================  ==============================================================
``durable``                   that; it wins where both are given
``reattach_on_restart`` only  the same as ``durable``; a deprecation warning on Airflow 3.3+
neither                       the deployment's ``[steadfast] durable``, default True
============================  ==============================================================

Below Airflow 3.3 there is nothing yet to replace ``reattach_on_restart``, so nobody is warned, and
``durable`` acts as it: the provider's label search, or the exact identity where that is on, or neither.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import derived, policy

if TYPE_CHECKING:
    from collections.abc import Callable

DURABLE = "durable"
REATTACH = "reattach_on_restart"


@dataclass(frozen=True)
class Choice:
    """Whether a retry looks for its pod, and the warning to give about how that was said."""

    durable: bool
    warning: str | None = None


def choose(
    durable: bool | None, reattach_on_restart: bool | None, *, default: bool, has_store: bool
) -> Choice:
    """Return what the two parameters mean; None is "not given". Pure.

    ``default`` is the deployment's, ``has_store`` whether this Airflow has a task state store (3.3+).
    """
    warning = None
    if reattach_on_restart is not None and has_store:
        warning = "`reattach_on_restart` is deprecated on Airflow 3.3+: use `durable` instead, same values."
    for given in (durable, reattach_on_restart):
        if given is not None:
            return Choice(bool(given), warning)
    return Choice(default, warning)


def build_init(
    native: Callable[..., None],
    *,
    has_store: bool,
    deployment_default: Callable[[], bool],
    category: type[Warning],
) -> Callable[..., None]:
    """Return an ``__init__`` over the class's own, undecorated one that gives both parameters this meaning.

    Both, and those of ``policy.CHOICES``, are real parameters of its signature, also where the provider
    knows only one, so that ``default_args`` and ``.partial()`` reach them. ``native`` is called with none
    of them: what it would warn about and decide is decided here. ``deployment_default`` is asked when an
    operator is made. The operators of ``derived.LEFT_ALONE`` are made as the provider makes them.
    """
    native_knows = frozenset(inspect.signature(native).parameters)

    def __init__(  # noqa: N807 - the method that it becomes
        self: Any, *, durable: bool | None = None, reattach_on_restart: bool | None = None, **keywords: Any
    ) -> None:
        choices = {name: policy.check(name, keywords.pop(name, None)) for name in policy.CHOICES}
        if derived.is_left_alone(self):
            given = {DURABLE: durable, REATTACH: reattach_on_restart}
            known = {n: v for n, v in given.items() if v is not None and n in native_knows}
            native(self, **known, **keywords)
            return
        chosen = choose(durable, reattach_on_restart, default=deployment_default(), has_store=has_store)
        if chosen.warning is not None:
            warnings.warn(chosen.warning, category, stacklevel=2)
        native(self, **keywords)
        self.durable = chosen.durable
        # The provider's code, and subclasses, read the older name.
        self.reattach_on_restart = chosen.durable
        for name, choice in choices.items():
            setattr(self, name, choice)

    signature = inspect.signature(native)
    given = dict(signature.parameters)
    kinds = dict.fromkeys((DURABLE, REATTACH), "bool | None") | dict.fromkeys(policy.CHOICES, "str | None")
    for name, kind in kinds.items():
        given[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    variadic = [p for p in given.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    ordered = [p for p in given.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    shown = signature.replace(parameters=[*ordered, *variadic])
    __init__.__signature__ = shown  # type: ignore[attr-defined]  # what inspect reads
    __init__.__doc__ = native.__doc__
    __init__.__module__ = native.__module__
    __init__.__qualname__ = native.__qualname__
    return __init__
