# SPDX-License-Identifier: Apache-2.0
"""Carries out the planned faults, each in a thread of its own: a freeze does not delay the next one."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.soak import airflow_side
from tests.soak.stage import NAMESPACE
from tests.support.faults import Fault as ProxyFault
from tests.support.faults import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.soak.plan import Fault
    from tests.soak.schedulers import Scheduler
    from tests.soak.stage import Stage
    from tests.support.fault_proxy import FaultProxy

_QUOTA = "soak"
_CLEARED = 20
_PROGRESS, _LONGEST_WAIT = 15, 60.0


class Chaos(threading.Thread):
    """Runs the faults of a plan from ``start`` on; ``done`` counts what was carried out, by kind.

    Whoever starts it keeps ``progress`` up to date, the number of finished task instances: a fault waits for
    some progress since the one before, so that a slow machine is not kept from getting anywhere.
    """

    def __init__(
        self,
        faults: tuple[Fault, ...],
        stage: Stage,
        proxy: FaultProxy,
        schedulers: Mapping[str, Scheduler],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="chaos", daemon=True)
        self.done: Counter[str] = Counter()
        self.progress = 0
        self._faults = faults
        self._stage = stage
        self._proxy = proxy
        self._schedulers = schedulers
        self._say = say
        self._stopping = threading.Event()
        self._one_database_fault = threading.Lock()
        self._one_quota = threading.Lock()
        self._running: list[threading.Thread] = []

    def run(self) -> None:
        before = 0.0
        for fault in self._faults:
            if self._stopping.wait(fault.at - before) or self._wait_for_progress(first=before == 0):
                break
            before = fault.at
            self._say(f"fault: {fault}")
            self.done[fault.kind] += 1
            thread = threading.Thread(target=self._carry_out, args=(fault,), daemon=True)
            thread.start()
            self._running.append(thread)
        for thread in self._running:
            thread.join()

    def _wait_for_progress(self, *, first: bool) -> bool:
        """Wait until work went on, or long enough; True when stopping."""
        since, deadline = self.progress, time.monotonic() + (0 if first else _LONGEST_WAIT)
        while time.monotonic() < deadline and self.progress < since + _PROGRESS:
            if self._stopping.wait(1):
                return True
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin no further fault, end those at work, and put everything right again."""
        self._stopping.set()
        self.join()

    def _carry_out(self, fault: Fault) -> None:
        try:
            match fault.kind:
                case "kill":
                    self._schedulers[fault.target].kill()
                case "freeze" | "long_freeze":
                    self._schedulers[fault.target].freeze(fault.seconds)
                case "database_restart":
                    self._restart_database(fault.seconds)
                case "quota":
                    self._no_quota(fault.seconds)
                case "api_freeze":
                    self._freeze_api(fault.seconds)
                case "clear":
                    self.done["task instances cleared"] += airflow_side.clear_queued(_CLEARED)
                case _:
                    self._through_proxy(fault)
        except Exception as error:
            self._say(f"the fault {fault} could not be carried out: {error!r}")
            self.done[f"{fault.kind} (not carried out)"] += 1

    def _restart_database(self, seconds: float) -> None:
        with self._one_database_fault:
            self._stage.database.stop()
            self._stopping.wait(seconds)
            for _ in range(5):
                with contextlib.suppress(subprocess.CalledProcessError):
                    self._stage.database.start()
                    return
                time.sleep(1)
            raise RuntimeError("PostgreSQL did not start again")

    def _no_quota(self, seconds: float) -> None:
        """A ResourceQuota that allows no further pod: the API server itself answers 403."""
        from kubernetes.client import models as k8s

        api = self._stage.cluster.client()
        hard = {"pods": "0"}
        quota = k8s.V1ResourceQuota(
            metadata=k8s.V1ObjectMeta(name=_QUOTA), spec=k8s.V1ResourceQuotaSpec(hard=hard)
        )
        with self._one_quota:
            api.create_namespaced_resource_quota(NAMESPACE, quota)
            try:
                # what the quota controller would write; none runs here
                quota.status = k8s.V1ResourceQuotaStatus(hard=hard, used={"pods": "0"})
                api.patch_namespaced_resource_quota_status(_QUOTA, NAMESPACE, quota)
                self._stopping.wait(seconds)
            finally:
                _insist(lambda: api.delete_namespaced_resource_quota(_QUOTA, NAMESPACE))

    def _freeze_api(self, seconds: float) -> None:
        process = self._stage.kube_apiserver()
        process.suspend()
        try:
            self._stopping.wait(seconds)
        finally:
            process.resume()

    def _through_proxy(self, fault: Fault) -> None:
        faults = {
            "lost_reply": (ProxyFault("drop_reply", forward=True, count=6),),
            "throttle": (refusal(429, retry_after=2),),
            "errors": (
                refusal(504, forward=True, count=2),
                refusal(500, count=2),
                ProxyFault("reset", count=2),
                refusal(504, count=2),
            ),
        }[fault.kind]
        numbers = [self._proxy.add(each) for each in faults]
        self._stopping.wait(fault.seconds)
        for number in numbers:
            self.done[f"requests hit by {fault.kind}"] += self._proxy.hits(number)
            self._proxy.remove(number)


def _insist(action: Callable[[], object]) -> None:
    """Do it although the API server may be frozen just now."""
    for _ in range(9):
        with contextlib.suppress(Exception):
            action()
            return
        time.sleep(2)
    action()
