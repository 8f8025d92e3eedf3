# SPDX-License-Identifier: Apache-2.0
"""Writes docs/soak.md from results: both implementations side by side, with what each figure bounds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.outcome import upper_bound
from tests.soak.plan import PER_RUN
from tests.soak.stage import PUBLISH_RETRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = dict[str, Any]

_HEAD = f"""\
# Two schedulers under faults

<!-- written by `python -m tests.soak report` from the results of `python -m tests.soak` -->

Two `airflow scheduler` processes (Airflow 3.3.2, provider 10.25.0), Airflow's own API server for the
workers, a PostgreSQL, and a kube-apiserver with etcd, all real. There is no kubelet: a *pod player* watches
the worker pods, calls the Execution API with each pod's own token as its worker would, and writes the pod's
status. Work takes no time, or a few seconds for some; some pods start late, one in a hundred after the
queued timeout. Of {PER_RUN} task instances 76 just run, 10 fail their first try, 7 are deferred once and 7
are sensors that are rescheduled twice.

Meanwhile a scheduler is killed (SIGKILL) or frozen (SIGSTOP) for shorter or longer than its health
threshold, PostgreSQL is stopped at once and started, the way to the kube-apiserver loses replies, resets
connections, answers 429, 500, 504, 403 (a real ResourceQuota) or nothing for a while, and a user clears
queued task instances. Schedulers that end are started again as Kubernetes would. Both implementations get
the same faults, from the same seed: upstream is the stock `KubernetesExecutor` with
`task_publish_max_retries = {PUBLISH_RETRIES}`, ours the guarded one with the same setting. The health
threshold and the queued timeout are short, for the soak to be.

What was created is taken from the kube-apiserver's audit log; what a worker was told, from the pod player;
the ends, from the database; the slots, from each scheduler's own debug dump (SIGUSR2) after half a minute of
quiet.

"""

_OUTAGE = """\
PostgreSQL is stopped for 90 s while task instances are queued and at work. Both schedulers end, are started
again and end again until it is back.

"""

_WORDS = """\
## The words

- **doubled**: a second pod of one launch: its task instance and try had a pod that was still to start, at
  work, or had done the work. It may have been answered by a refusal (the Execution API lets one of two run)
  or a deletion before it started; the lines below say which.
- **made after their task instance had moved on**: after the commit that gave its row
  another id; the figure after it is the longest such time. What moves on while its pod is being made can only
  be mopped up: that pod is revoked, or its worker refused.
- **refused as stale**: the worker's first call got 404 or 409, mostly because the task instance moved on
  after its pod was made (cleared, or reset by the other scheduler).
- **expired token**: 401 or 403: the launch waited longer than its token is valid (the queued timeout
  and 10 s leeway); **overdue** where the pod itself waited that long for its node.
- **deleted before it started**: by its scheduler, mostly because the pod waited longer than the queued
  timeout; the task instance is launched again.
- **burnt tries**: tries that neither their worker's report nor a user ended. Airflow's core burns one when it
  resets an orphan of a dead scheduler, whatever the executor does.
- The bound is the one-sided 95 % upper bound of the share (Clopper-Pearson). It takes
  launches as independent.
"""


def page(results: Sequence[Result]) -> str:
    """Return the page; it says which scenario has no result, an implementation without one is left out."""
    parts = [_HEAD]
    for scenario, title, text in (
        ("soak", "Random faults", ""),
        (
            "outage",
            "A long database outage",
            _OUTAGE,
        ),
    ):
        of = {
            impl: [r for r in results if r["plan"]["scenario"] == scenario and r["plan"]["impl"] == impl]
            for impl in ("upstream", "steadfast")
        }
        body = _table(of) if any(of.values()) else "No result of this scenario yet.\n"
        parts.append(f"## {title}\n\n{text}{body}\n")
    parts.append(_WORDS)
    return "".join(parts)


def _table(of: dict[str, list[Result]]) -> str:
    columns = [results for results in of.values() if results]
    names = [name for name, results in of.items() if results]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for label, cell in _rows():
        lines.append(f"| {label} | {' | '.join(cell(results) for results in columns)} |")
    for name, results in of.items():
        found = sorted({text for result in results for text in result["outcome"]["deviations"]})
        lines += ["", f"{name}: " + ("; ".join(found) if found else "nothing that must not be") + "."]
    return "\n".join(lines) + "\n"


def _rows() -> list[tuple[str, Callable[[list[Result]], str]]]:
    def launches(name: str) -> Callable[[list[Result]], str]:
        return lambda results: str(sum(r["outcome"]["launches"][name] for r in results))

    return [
        ("seeds", lambda results: ", ".join(str(r["plan"]["seed"]) for r in results)),
        ("health threshold, queued timeout", _thresholds),
        ("minutes of work", lambda results: f"{sum(r['work_seconds'] for r in results) / 60:.0f}"),
        ("faults", _faults),
        ("ends of a scheduler that nobody killed", lambda rs: str(_of_schedulers(rs, "own_exits"))),
        ("task instances", lambda results: str(_sum(results, "task_instances"))),
        ("of them successful", lambda results: str(_states(results)["success"])),
        ("of them lost (neither success nor failed)", _lost),
        ("of them failed", lambda results: _share(_states(results)["failed"], results)),
        ("of them cleared by a user while queued", lambda rs: str(sum(_cleared(r) for r in rs))),
        ("burnt tries", lambda results: str(_sum(results, "tries_burnt"))),
        ("worker pods", launches("pods")),
        ("of them made after their task instance had moved on", _late),
        ("of them doubled", _doubled),
        (
            "of them doubled, and both worked",
            lambda results: _share_of_pods(_fates(results)["started"], results),
        ),
        ("of them revoked or deleted before they started", _gone),
        ("of them refused as stale", launches("refused_stale")),
        ("of them with an expired token", launches("refused_token")),
        ("of them overdue", launches("overdue")),
        ("of them without an answer from the Execution API", launches("unreachable")),
        ("slots still held at the end", _slots),
        ("the guard dropped", _guard("workloads_dropped_total")),
        ("the guard adopted pods whose create had no answer", _guard("pods_adopted_total")),
        ("the guard revoked pods after their creation", _guard("pods_revoked_total")),
        ("the guard launched without a verdict", _guard("launches_failed_open_total")),
        ("the guard's checks without an answer", _guard("launch_check_errors_total")),
    ]


def _thresholds(results: list[Result]) -> str:
    pairs = {(r["plan"]["health_threshold"], r["plan"]["queued_timeout"]) for r in results}
    return "; ".join(f"{health} s, {queued} s" for health, queued in sorted(pairs))


def _sum(results: list[Result], name: str) -> int:
    return sum(result["outcome"][name] for result in results)


def _of_schedulers(results: list[Result], name: str) -> int:
    return sum(scheduler[name] for result in results for scheduler in result["schedulers"].values())


def _states(results: list[Result]) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result["outcome"]["states"])
    return total


def _fates(results: list[Result]) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result["outcome"]["launches"]["doubled_by_fate"])
    return total


def _cleared(result: Result) -> int:
    return int(result["faults"].get("task instances cleared", 0))


def _faults(results: list[Result]) -> str:
    total: Counter[str] = Counter()
    for result in results:
        kinds = result["faults"].items()
        total.update({kind: n for kind, n in kinds if not kind.startswith(("requests", "task instances"))})
    return ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in sorted(total.items()))


def _bounded(bad: int, of: int) -> str:
    return f"{bad} (≤ {100 * upper_bound(bad, of):.2g} %)" if bad < of else str(bad)


def _share(number: int, results: list[Result]) -> str:
    return _bounded(number, _sum(results, "task_instances"))


def _share_of_pods(number: int, results: list[Result]) -> str:
    return _bounded(number, sum(r["outcome"]["launches"]["pods"] for r in results))


def _lost(results: list[Result]) -> str:
    states = _states(results)
    return _share(sum(states.values()) - states["success"] - states["failed"], results)


def _doubled(results: list[Result]) -> str:
    fates = ", ".join(
        f"{number} {name.replace('_', ' ')}" for name, number in sorted(_fates(results).items())
    )
    number = sum(r["outcome"]["launches"]["doubled"] for r in results)
    return _share_of_pods(number, results) + (f": {fates}" if fates else "")


def _late(results: list[Result]) -> str:
    all_of = [result["outcome"]["launches"] for result in results]
    if not all("latest_by" in each for each in all_of):
        return "not measured"
    number = sum(each["late"] for each in all_of)
    most = max(each["latest_by"] for each in all_of)
    return _share_of_pods(number, results) + (f", by {most:.1f} s at most" if number else "")


def _gone(results: list[Result]) -> str:
    return str(sum(r["outcome"]["launches"][name] for r in results for name in ("revoked", "deleted")))


def _slots(results: list[Result]) -> str:
    return ", ".join(
        "no answer" if slots is None else str(slots)
        for result in results
        for slots in result["outcome"]["occupied_slots"].values()
    )


def _guard(prefix: str) -> Callable[[list[Result]], str]:
    """Add up the guard's own counters of this name, told apart by their label where they have one."""

    def cell(results: list[Result]) -> str:
        total: Counter[str] = Counter()
        for result in results:
            for name, number in result["guard"].items():
                if name.startswith(prefix + "{"):
                    total[name[len(prefix) + 1 : -1].partition("=")[2]] += int(number)
        return ", ".join(f"{number} {label}".strip() for label, number in sorted(total.items())) or "0"

    return lambda results: cell(results) if results[0]["plan"]["impl"] == "steadfast" else "-"
