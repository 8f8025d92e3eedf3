# SPDX-License-Identifier: Apache-2.0
"""Holes and public reports that no scenario plays: out of an executor's reach, or shown by another suite."""

_CORE = "core: of two pods for one id the first to call `/run` wins. Played from the other side: "
_TWO = "core: fixed in 3.2 and 3.3 by a state clause; in 3.1.8, 3.0.6 and 2.11.2 the loser's launch is "
_LATE = "nobody is left to compare it; its worker is refused (404 or 409) and its pod is left for the "

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
        "H8, half: a create that the server carries out after its scheduler has died",
        f"{_LATE}adopting scheduler or the cluster's clean-up",
    ),
    (
        "#49889: stuck-in-queued handling revokes without looking at the state again",
        "core: it may kill a task that has just started, whoever the executor is",
    ),
    (
        "#57618, PR #59234: two schedulers queue one task instance",
        f"{_TWO}dropped as `owner_changed` where it is checked after the other's commit",
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
        "fixed in provider 10.25.0; the workload never reaches the queue",
    ),
)
