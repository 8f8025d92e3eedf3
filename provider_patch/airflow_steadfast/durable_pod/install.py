# SPDX-License-Identifier: Apache-2.0
"""Makes an operator class durable, in place.

The class object stays the one that Dags, subclasses and mapped operators hold; its methods are
wrapped and its ``__init__`` gains the two parameters. All or nothing: where a method or parameter
that is relied on is missing, the class is left as it was.

This module imports the whole package at once: a task that runs for hours must not load a module of a
version that was installed meanwhile.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any

from airflow_steadfast import capabilities, settings
from airflow_steadfast.durable_pod import methods, parameters, trigger
from airflow_steadfast.durable_pod import session as sessions

log = logging.getLogger("airflow_steadfast.durable_pod")

MARK = "_steadfast_durable_mode"
"""Class attribute, once patched: "durable" with a task state store; without one "exact_identity", or
"reattach_on_restart" where only the parameter is given its meaning."""

_TRIGGERS = "airflow.providers.cncf.kubernetes.triggers.pod"


class SeamMismatchError(RuntimeError):
    """The class lacks something that the patch relies on; the message names it."""


def install(module: Any) -> None:
    """Make the stock ``KubernetesPodOperator`` of its imported module durable. Idempotent.

    Raises SeamMismatchError, with nothing changed, where the class does not fit.
    """
    make_durable(module.KubernetesPodOperator, exact=settings.current().exact_identity)


def make_durable(operator: type[Any], *, exact: bool = True) -> str:
    """Patch an operator class once and return its mode (see MARK); a patched class's subclass has it already.

    ``exact`` asks for the exact identity where there is no task state store. Raises SeamMismatchError,
    with nothing changed, where the class does not fit.
    """
    mode: str | None = getattr(operator, MARK, None)
    has_store = capabilities.has_task_state_store(capabilities.versions())
    wanted = "durable" if has_store else "exact_identity" if exact else "reattach_on_restart"
    if mode is not None and (mode == wanted or not exact):
        return mode
    changes: dict[str, Any] = {MARK: wanted}
    if mode is None:
        changes["__init__"] = _initializer(operator, has_store=has_store)
    if has_store or exact:
        # Only here: the trigger and the operator's methods are of no concern to the parameter.
        changes |= _methods_of(operator)
        changes[sessions.EXACT_MARK] = not has_store
    for name, change in changes.items():
        setattr(operator, name, change)
    log.debug("%s works in mode %s", operator.__name__, wanted)
    return wanted


def _methods_of(operator: type[Any]) -> dict[str, Any]:
    lost = capabilities.missing_seam(operator, methods.SEAMS) or _missing(operator, methods.READ_SEAMS)
    if lost:
        raise SeamMismatchError(lost)
    try:
        trigger.install(importlib.import_module(_TRIGGERS))
        return methods.build(operator)
    except (TypeError, AttributeError, ImportError) as error:
        raise SeamMismatchError(str(error)) from error


def _missing(operator: type[Any], names: tuple[str, ...]) -> str:
    lost = [name for name in names if not hasattr(operator, name)]
    return f"{operator.__name__} has no {lost[0]}" if lost else ""


def _initializer(operator: type[Any], *, has_store: bool) -> Any:
    """Return the new ``__init__``, decorated by Airflow's own metaclass like the one it stands for."""
    from airflow.exceptions import AirflowProviderDeprecationWarning

    decorate = getattr(type(operator), "_apply_defaults", None)
    # Only the metaclass's own layer comes off: another library's wrapper below it stays in place.
    native = getattr(vars(operator).get("__init__"), "__wrapped__", None)
    if decorate is None:
        raise SeamMismatchError(f"{type(operator).__name__} has no _apply_defaults")
    if native is None:
        native = _plain_initializer(operator)
    if parameters.REATTACH not in inspect.signature(native).parameters:
        raise SeamMismatchError(f"{operator.__name__} has no parameter {parameters.REATTACH}")
    return decorate(
        parameters.build_init(
            native,
            has_store=has_store,
            deployment_default=lambda: settings.current().durable,
            category=AirflowProviderDeprecationWarning,
        )
    )


def _plain_initializer(operator: type[Any]) -> Any:
    """Return an ``__init__`` for a subclass that has none of its own: its parent's, signature included."""
    parent = operator.__init__

    def __init__(self: Any, **keywords: Any) -> None:  # noqa: N807 - the method that it becomes
        parent(self, **keywords)

    __init__.__signature__ = inspect.signature(parent)  # type: ignore[attr-defined]  # what inspect reads
    return __init__
