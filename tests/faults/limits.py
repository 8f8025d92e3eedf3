# SPDX-License-Identifier: Apache-2.0
"""Holes and public reports that no scenario plays: out of an executor's reach, or shown by another suite."""

_CORE = "core: of two pods for one id the first to call `/run` wins. Played from the other side: "

LIMITS: tuple[tuple[str, str], ...] = (
    (
        "H9: the Execution API knows a task instance's id and state, not which launch a worker was made for",
        f"{_CORE}`reply_lost_retrying` shows what it does to the task, the guard makes one pod only",
    ),
    (
        "H20: SQL on PostgreSQL, MySQL, SQLite; plans on a million rows",
        "tests/on_airflow/databases and tests/on_airflow/launch_guard",
    ),
    (
        "H22, #62887, PR #70475: callbacks and workloads yet unknown",
        "the provider's executor takes none; that the guard lets one pass is in tests/unit/launch_guard",
    ),
    (
        "#73238: infrastructure failures with container reason `Error` consume a retry",
        "by upstream's configuration (`pod_launch_failure_excluded_container_reasons`), unchanged",
    ),
    (
        "#36998, #35354, #21087: watches that idle, die or get 410 Gone",
        "the provider's watcher, unchanged",
    ),
    (
        "#67643: invalid `executor_config`",
        "upstream keeps the slot before provider 10.25.0: tests/on_airflow/launch_guard/test_slots.py",
    ),
)
