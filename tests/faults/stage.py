# SPDX-License-Identifier: Apache-2.0
"""What a scenario stands on: a namespace, a Dag, schedulers, workers, the fault proxy, and the verdict."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tests.faults import dags
from tests.faults.audit import Audit, Created
from tests.faults.kube import Pods
from tests.faults.outcome import Outcome
from tests.faults.scheduler import Scheduler
from tests.faults.table import FINISHED, Row, Table
from tests.faults.worker import ExecutionApi, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.faults.servers import Servers
    from tests.faults.spec import Scenario

RUN = "run"
ALIAS = "KubernetesExecutor"
_SETTLE_SECONDS = 240.0


@dataclass(frozen=True)
class Want:
    """What a launch should come to: this many pods for (``ti_id``, ``try_number``), and a state.

    ``pods`` None stands for any number, ``state`` (the task instance's at the end) None for any state.
    ``flaw`` is what the scenario itself has seen to be amiss, counted as ``kind``; "" for nothing.
    """

    row: Row
    pods: int | None = 1
    state: str | None = "success"
    flaw: str = ""
    kind: Literal["doubled", "wrong"] = "wrong"


class Stage:
    """One per process; ``begin`` and ``end`` bracket a trial."""

    with_ids = True
    """Whether task instances have an id of their own."""

    def __init__(self, scenario: Scenario, impl: str, size: int, servers: Servers) -> None:
        self.scenario, self.impl, self.size, self.servers = scenario, impl, size, servers
        self.proxy, self.postgres = servers.proxy, servers.postgres
        self.api = self._open_api()
        self.schedulers: list[Scheduler] = []

    def _open_api(self) -> Any:
        return ExecutionApi()

    def _workers(self) -> Any:
        return Workers(self.api, self.pods)

    def begin(self, number: int) -> None:
        """Set up a trial: everything fresh but the processes of the servers and this one."""
        name = f"{self.scenario.name.replace('_', '-')}-{self.impl[0]}-{number}"
        self.dag_id = name
        self.proxy.clear()
        os.environ["AIRFLOW__KUBERNETES_EXECUTOR__NAMESPACE"] = name
        self.pods = Pods(self.servers.cluster, name)
        self.audit = Audit(self.servers.cluster.folder / "audit.log", name)
        self.table = Table(os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], name, with_ids=self.with_ids)
        self.workers: Any = self._workers()
        self.schedulers = []

    def end(self) -> None:
        """Take a trial down."""
        self.proxy.clear()
        for scheduler in self.schedulers:
            scheduler.end()
        self.table.execute(f"UPDATE dag_run SET state = 'failed' WHERE dag_id = '{self.dag_id}'")
        self.table.execute("UPDATE job SET state = 'failed' WHERE state = 'running'")
        self.pods.delete_all()
        self.pods.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.api.close()

    # What a scenario asks for.

    def dag(self, kind: dags.Kind = "plain", size: int = 0, executors: Sequence[str] = ()) -> None:
        """Store the Dag and start its run."""
        dags.store(self.dag_id, size or self.size, kind, executors)
        dags.trigger(self.dag_id, RUN)

    def scheduler(self, *, aliases: Sequence[str] = (ALIAS,)) -> Scheduler:
        """Start a scheduler with one executor for each alias."""
        scheduler = Scheduler(lambda: [self._executor(alias) for alias in aliases])
        self.schedulers.append(scheduler)
        return scheduler

    def _executor(self, alias: str) -> Any:
        from airflow.executors.executor_utils import ExecutorName

        path = "airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor"
        if self.impl == "steadfast":
            path = "airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor"
        module, _, name = path.rpartition(".")
        made = getattr(__import__(module, fromlist=[name]), name)()
        made.name = ExecutorName(module_path=path, alias=alias)
        if self.impl == "steadfast":
            start = made.start

            def checked() -> None:
                start()
                if made._steadfast_guard is None:
                    raise RuntimeError("the guard is not active: the scenario would show upstream")

            made.start = checked
        return made

    def restart(self, scheduler: Scheduler) -> Scheduler:
        """Start a scheduler in a dead one's place, whose job is known to be dead; it adopts at its start."""
        scheduler.replaced = True
        self.table.execute(f"UPDATE job SET state = 'failed' WHERE id = {scheduler.job_id}")
        heir = self.scheduler(aliases=[executor.name.alias for executor in scheduler.executors])
        heir.adopt()
        return heir

    def rows(self) -> list[Row]:
        return self.table.rows()

    def clear_rows(self, rows: Sequence[Row]) -> None:
        """Clear task instances as a user does."""
        dags.clear(
            self.dag_id, RUN, sorted({row.task_id for row in rows}), sorted({row.map_index for row in rows})
        )

    def configure(self, name: str, value: str) -> None:
        """Set an option of the executor for what is started from now on."""
        os.environ[f"AIRFLOW__KUBERNETES_EXECUTOR__{name.upper()}"] = value

    def until(self, is_so: Callable[[], bool], what: str, patience: float = 60.0) -> None:
        """Wait; raises TimeoutError that says for what."""
        deadline = time.monotonic() + patience
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {patience:.0f} s: {what}")
            time.sleep(0.05)

    def settle(
        self, *, quiet: float = 6.0, play: Callable[[], int] | None = None, restart: bool = True
    ) -> None:
        """Let schedulers and workers go on until all is finished, or nothing has moved for ``quiet`` s.

        A scheduler whose loop ended is restarted, as Kubernetes does.
        """
        play = play or self.workers.play
        moved_at = began = time.monotonic()
        before: object = None
        while time.monotonic() - began < _SETTLE_SECONDS:
            for scheduler in list(self.schedulers):
                if scheduler.replaced or scheduler.loop():
                    continue
                if restart:
                    self.restart(scheduler)
            moved = play()
            rows = self.rows()
            now = (rows, self._unfinished_pods(), self._books())
            if moved or now != before:
                moved_at, before = time.monotonic(), now
            if all(row.state in FINISHED for row in rows) and not now[1] and not now[2]:
                return
            if time.monotonic() - moved_at > quiet:
                return
            time.sleep(0.05 if moved else 0.2)

    def _unfinished_pods(self) -> int:
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in self.pods.all())

    def _books(self) -> int:
        return sum(
            len(executor.running) for one in self.schedulers if one.alive for executor in one.executors
        )

    # The verdict.

    def judge(self, wants: Iterable[Want]) -> Outcome:
        """Count what came of the launches: all that the scenario knows of, in one call.

        Their pods come from the API server's audit log. A launch that is at its end but still in an
        executor's books (a slot that leaked) is wrong. A pod of a launch that no want names was asked for
        by nobody: that launch is counted as well, and as doubled.
        """
        outcome = Outcome()
        created = Counter(map(self._launch, self.audit.created()))
        rows = self.rows()
        states = {self._task_instance(row): row.state for row in rows}
        unfinished = {row.at for row in rows if row.state not in FINISHED}
        leaked = self._leaked()
        known = list(wants)
        for want in known:
            row = want.row
            pods = created[self._launch(row)]
            least, most = (0, pods) if want.pods is None else (want.pods, want.pods)
            state = states.get(self._task_instance(row), "gone")
            outcome.count(
                f"{_told(row)}: {pods} pods of {most}, {state}" + (want.flaw and f", {want.flaw}"),
                lost=pods < least,
                doubled=pods > most or (bool(want.flaw) and want.kind == "doubled"),
                wrong=pods >= least
                and (
                    (bool(want.flaw) and want.kind == "wrong")
                    or (want.state is not None and state != want.state)
                    or ((*row.at, row.try_number) in leaked and row.at not in unfinished)
                ),
            )
        self.count_unasked(outcome, [want.row for want in known])
        outcome.exits += sum(one.exits for one in self.schedulers)
        outcome.note("shutdowns that hung", sum(one.hung for one in self.schedulers))
        for status, number in self.workers.refused.items():
            outcome.note(f"workers refused with {status}", number)
        return outcome

    def count_unasked(self, outcome: Outcome, rows: Sequence[Row]) -> None:
        """Count each launch that got a pod and is none of ``rows``, as doubled.

        But a task instance's last try is asked for by core, and gets one pod.
        """
        asked = set(map(self._launch, rows))
        last = set(map(self._launch, self.rows()))
        unasked: dict[tuple[object, ...], list[Created]] = defaultdict(list)
        for pod in self.audit.created():
            if self._launch(pod) not in asked:
                unasked[self._launch(pod)].append(pod)
        for launch, pods in unasked.items():
            if len(pods) > (launch in last):
                where = f"{_told(pods[0])} {pods[0].ti_id}"
                outcome.count(f"{where}: {len(pods)} pods that nobody asked for", doubled=True)

    def _leaked(self) -> set[tuple[object, ...]]:
        """The places and tries that are in the books of schedulers that are alive."""
        return {
            (key.run_id, key.task_id, key.map_index, key.try_number)
            for one in self.schedulers
            if one.alive
            for executor in one.executors
            for key in executor.running
        }

    def _task_instance(self, about: Row | Created) -> tuple[object, ...]:
        return (about.ti_id,) if self.with_ids else (about.run_id, about.task_id, about.map_index)

    def _launch(self, about: Row | Created) -> tuple[object, ...]:
        return *self._task_instance(about), about.try_number

    def audit_verbs(self) -> Counter[str]:
        """How often executors asked for what about pods of the namespace."""
        self.audit.created()
        return self.audit.verbs

    def judge_now(self, before: Sequence[Row] = (), pods: int | None = 1, state: str = "success") -> Outcome:
        """Count by the rows as they are at the end: the last try of each must have had its pods.

        ``before`` are rows as they were scheduled earlier. A launch among them that is not a row's last
        must have got no pod.
        """
        rows = self.rows()
        last = set(map(self._launch, rows))
        gone = [row for row in before if self._launch(row) not in last]
        outcome = self.judge(
            [*(Want(row, pods, state) for row in rows), *(Want(row, 0, None) for row in gone)]
        )
        outcome.note("tries burned", sum(max(0, row.try_number - 1) for row in rows))
        return outcome

    def total(self, name: str, **labels: str) -> float:
        """A total of the guard; 0 for upstream, which has none."""
        if self.impl == "upstream":
            return 0.0
        from airflow_steadfast import signals

        return float(signals.totals().value(f"steadfast_{name}", **labels))


def _told(about: Row | Created) -> str:
    return f"{about.task_id}[{about.map_index}] try {about.try_number}"
