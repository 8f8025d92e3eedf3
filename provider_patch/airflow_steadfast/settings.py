# SPDX-License-Identifier: Apache-2.0
"""The ``[steadfast]`` section of Airflow's configuration: one table, typed, read once.

A setting is one line of :class:`Settings`; its default, unit, scope and help live there, and
``python -m airflow_steadfast.settings`` prints the table for the docs. Reading never raises: a wrong
or contradictory value, or a key that does not exist, makes one log line that names the key and the
fix, the default is used, and ``steadfast_settings_errors_total`` counts it.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_steadfast import signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger("airflow_steadfast.settings")

SECTION = "steadfast"
ENVIRONMENT_PREFIX = f"AIRFLOW__{SECTION.upper()}__"
SETTINGS_ERRORS = "steadfast_settings_errors_total"


class Configuration(Protocol):
    """What is needed of Airflow's ``conf``."""

    def get(self, section: str, key: str, **kwargs: Any) -> Any:
        """Return the value as text; ``fallback`` is returned where there is none."""


def _setting(default: Any, parse: Callable[[str], Any], **described: str) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse, **described})


def _flag(default: bool, scope: str, text: str) -> Any:
    return _setting(default, _parse_flag, type="boolean", unit="", scope=scope, help=text)


def _seconds(default: float, low: float, high: float, scope: str, text: str) -> Any:
    def parse(value: str) -> float:
        number = float(value)
        if not (math.isfinite(number) and low <= number <= high):
            raise ValueError(f"give a number of seconds from {low:g} to {high:g}")
        return number

    return _setting(default, parse, type="number", unit="seconds", scope=scope, help=text)


def _choice(default: str, allowed: tuple[str, ...], scope: str, text: str) -> Any:
    def parse(value: str) -> str:
        chosen = value.strip().lower()
        if chosen not in allowed:
            raise ValueError(f"give one of {', '.join(allowed)}")
        return chosen

    return _setting(default, parse, type=" \\| ".join(allowed), unit="", scope=scope, help=text)


def _folder(default: str, scope: str, text: str) -> Any:
    def parse(value: str) -> str:
        if not os.path.isabs(value.strip()):  # noqa: PTH117 - text in, text out; no file is touched
            raise ValueError("give an absolute path")
        return value.strip()

    return _setting(default, parse, type="path", unit="", scope=scope, help=text)


def _text(default: str, scope: str, text: str) -> Any:
    return _setting(default, str.strip, type="text", unit="", scope=scope, help=text)


def _parse_flag(value: str) -> bool:
    """Read a boolean by the words of Airflow's own ``getboolean``."""
    word = value.split("#", maxsplit=1)[0].strip().lower()
    if word in {"t", "true", "1", "yes", "on"}:
        return True
    if word in {"f", "false", "0", "no", "off"}:
        return False
    raise ValueError("give True or False")


SCHEDULER = "scheduler"
EVERYWHERE = "every process"
WORKER = "worker and triggerer"


@dataclass(frozen=True)
class Settings:
    """All settings with their types and defaults. Times are in seconds."""

    launch_guard: str = _choice(
        "auto",
        ("auto", "enforce", "observe", "off"),
        SCHEDULER,
        "What the launch guard does. `auto` and `enforce` drop stale workloads (`enforce` logs an error "
        "where the guard cannot be active, `auto` a warning); `observe` counts what would be dropped and "
        "leaves every decision to the stock executor; `off` is the stock executor.",
    )
    guard_max_hold: float = _seconds(
        60,
        0,
        86_400,
        SCHEDULER,
        "How long a launch is held while the database gives no answer, before it is made without a "
        "verdict. Must be below `[scheduler] task_queued_timeout`.",
    )
    guard_check_timeout: float = _seconds(
        2, 0.1, 30, SCHEDULER, "The longest that one check of the queue may wait for the database."
    )
    guard_recheck_age: float = _seconds(
        1, 0, 60, SCHEDULER, "A verdict older than this when its launch is due is asked for again."
    )
    guard_create_retry: float = _seconds(
        120,
        0,
        3_600,
        SCHEDULER,
        "For how long a pod's creation is repeated when the API server refuses it for now (quota, 429) or "
        "leaves its outcome open (no answer, 5xx), before the executor's own rule "
        "(`[kubernetes_executor] task_publish_max_retries`) decides. 0: the executor's rule alone.",
    )
    inject: str = _choice(
        "auto",
        ("auto", "off"),
        SCHEDULER,
        "Whether a worker pod whose template lacks the patch is given its volume, mount and path from the "
        "executor's default pod template (`auto`), or launched as it is and counted (`off`).",
    )
    handoff_dir: str = _folder(
        "/var/lib/steadfast/handoff",
        SCHEDULER,
        "Folder that the scheduler shares with the sidecar; the totals are written there.",
    )
    patch_kpo: bool = _flag(
        False, EVERYWHERE, "Give the stock `KubernetesPodOperator` class the durable behaviour too."
    )
    allow_untested: bool = _flag(
        False,
        EVERYWHERE,
        "Work with an Airflow or provider newer than the newest tested, where the seams still match.",
    )
    durable: bool = _flag(
        True, WORKER, "The `durable` of an operator that sets neither `durable` nor `reattach_on_restart`."
    )
    on_finished: str = _choice(
        "harvest",
        ("harvest", "rerun"),
        WORKER,
        "What a retry does with a pod that succeeded while nobody watched: `harvest` takes its logs and "
        "result and does not run the work again, `rerun` runs it again. Per operator too.",
    )
    on_lost_xcom: str = _choice(
        "rerun",
        ("rerun", "fail"),
        WORKER,
        "What happens where the work is done and its XCom cannot be had any more: `rerun` does the work "
        "again in a retry, `fail` fails the task at once and says so. Per operator too.",
    )
    on_clear: str = _choice(
        "fresh",
        ("fresh", "reattach"),
        WORKER,
        "What a user's clear does with a pod that still runs and has lost its worker: `fresh` deletes it and "
        "makes a new one, `reattach` follows it. Per operator too.",
    )
    on_unknown_kill: str = _choice(
        "keep",
        ("keep", "delete"),
        WORKER,
        "What happens to the pod of a task that was told to stop while nothing says that its work is "
        "unwanted: `keep` leaves it to the retry, `delete` deletes it. Per operator too.",
    )
    exact_identity: bool = _flag(
        False,
        WORKER,
        "Below Airflow 3.3, give the stock `KubernetesPodOperator` an identity by a deterministic pod name "
        "and annotations. `DurableKubernetesPodOperator` always has it.",
    )
    deployment: str = _text(
        "",
        WORKER,
        "A name that tells this Airflow from another one that makes pods in the same namespace; empty: "
        "derived from the addresses in its configuration.",
    )


def table() -> tuple[dataclasses.Field[Any], ...]:
    """The settings in their order; ``metadata`` holds parse, type, unit, scope and help."""
    return dataclasses.fields(Settings)


def read(conf: Configuration, environment: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Read the settings; return them and one sentence per problem, each naming its key. Never raises."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in table():
        try:
            text = conf.get(SECTION, setting.name, fallback=None)
        except Exception as error:
            problems.append(_problem(setting, f"cannot be read ({error})"))
            continue
        if text is None or str(text).strip() == "":
            continue
        try:
            values[setting.name] = setting.metadata["parse"](str(text))
        except ValueError as error:
            problems.append(_problem(setting, f"= {text!r} is wrong: {error}"))
    _hold_below_queue_timeout(values, problems, conf)
    problems.extend(
        f"[{SECTION}] {key} is no setting of Steadfast: remove it, or see the settings table for its name"
        for key in sorted(_given_keys(conf, environment) - {setting.name for setting in table()})
    )
    return Settings(**values), problems


def _problem(setting: dataclasses.Field[Any], what: str) -> str:
    return f"[{SECTION}] {setting.name} {what}; its default {setting.default!r} is used"


def _hold_below_queue_timeout(values: dict[str, Any], problems: list[str], conf: Configuration) -> None:
    """A held launch must be made before the scheduler gives up on it as stuck in queued."""
    try:
        timeout = float(conf.get("scheduler", "task_queued_timeout", fallback=600))
    except Exception:
        timeout = 600.0
    hold = values.get("guard_max_hold", Settings.guard_max_hold)
    if hold < timeout:
        return
    usable = min(Settings.guard_max_hold, timeout / 2)
    values["guard_max_hold"] = usable
    problems.append(
        f"[{SECTION}] guard_max_hold = {hold:g} is not below [scheduler] task_queued_timeout = {timeout:g}: "
        f"lower the first or raise the second; {usable:g} is used"
    )


def _given_keys(conf: Configuration, environment: Mapping[str, str]) -> set[str]:
    given = {
        name[len(ENVIRONMENT_PREFIX) :].lower() for name in environment if name.startswith(ENVIRONMENT_PREFIX)
    }
    try:
        section = getattr(conf, "getsection", lambda _: None)(SECTION)
        given.update(str(key).lower() for key in section or ())
    except Exception:
        log.debug("the [%s] section cannot be listed", SECTION, exc_info=True)
    return {key.removesuffix("_cmd").removesuffix("_secret") for key in given}


_current: Settings | None = None


def current() -> Settings:
    """The settings of this process, read at the first call. Never raises."""
    global _current  # noqa: PLW0603 - read once per process is the contract
    if _current is None:
        _current = _read_and_report()
    return _current


def reset() -> None:
    """Forget what was read, so that the next ``current()`` reads anew (tests)."""
    global _current  # noqa: PLW0603 - see current()
    _current = None


def _read_and_report() -> Settings:
    try:
        from airflow.configuration import conf

        settings, problems = read(conf, os.environ)
    except Exception:
        log.warning("[%s] cannot be read: all defaults are used", SECTION, exc_info=True)
        signals.totals().increment(SETTINGS_ERRORS)
        return Settings()
    for problem in problems:
        log.warning("%s", problem)
        signals.totals().increment(SETTINGS_ERRORS)
    return settings


def markdown(rows: Iterable[dataclasses.Field[Any]]) -> str:
    """The settings table as Markdown, for the docs."""
    lines = ["| setting | type | unit | default | scope | meaning |", "|---|---|---|---|---|---|"]
    for row in rows:
        about = row.metadata
        lines.append(
            f"| `{row.name}` | {about['type']} | {about['unit']} | `{row.default}` | {about['scope']} "
            f"| {about['help']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown(table()))
