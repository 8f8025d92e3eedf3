# SPDX-License-Identifier: Apache-2.0
"""The project's numbers as Prometheus answers them, never as the processes themselves claim."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.cluster.stories.outcome import StoryFailedError, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.stories.kubectl import Kubectl

_TARGET_LABELS = frozenset({"__name__", "instance", "job", "namespace", "pod", "container", "node"})
_UP = 'up{job="steadfast-sidecar"}'
_PORT = 9109
_SETTLE_SECONDS = 5.0
"""What was written before is in the sidecar after this long: it polls every 2 s in the demo."""


def series(name: str, labels: Mapping[str, str] | None = None) -> str:
    """Name a series as it is written: ``name{label="value"}``."""
    if not labels:
        return name
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}"


class Prometheus:
    """Instant queries through the API server's proxy. An error answer raises StoryFailedError."""

    def __init__(
        self, kubectl: Kubectl, airflow: Kubectl, service: str = "prometheus", port: int = 9090
    ) -> None:
        """Take the cluster with Prometheus's namespace as the default one, and with Airflow's."""
        self._kubectl = kubectl
        self._airflow = airflow
        self._service = service
        self._port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result vector of an instant query, now."""
        return list(self._get("query", query=expression)["result"])

    def totals(self) -> dict[str, float]:
        """Every ``steadfast_`` series summed over the sidecars that are there now, by its written name."""
        totals: dict[str, float] = {}
        for sample in self.query('{__name__=~"steadfast_.+"}'):
            labels = {key: value for key, value in sample["metric"].items() if key not in _TARGET_LABELS}
            key = series(sample["metric"]["__name__"], labels)
            totals[key] = totals.get(key, 0.0) + float(sample["value"][1])
        return totals

    def settled(self, seconds: float = 120) -> dict[str, float]:
        """Return totals that include all that happened before this call; waits for a scrape late enough."""
        late_enough = self._now() + _SETTLE_SECONDS
        wait_for("a scrape of the sidecar", self._last_scrape, lambda at: at >= late_enough, seconds)
        return self.totals()

    def sidecar_up(self) -> bool:
        """Say whether the scheduler pods' sidecars, and none else, are scraped and their last scrape worked.

        After a rollout Prometheus knows the old pod's series for some seconds more; a sum that includes
        them falls when they go.
        """
        wanted = self._sidecars()
        ups = {sample["metric"]["instance"]: sample["value"][1] for sample in self.query(_UP)}
        known = {sample["metric"]["instance"] for sample in self.query("steadfast_build_info")}
        return bool(wanted) and set(ups) == known == wanted and set(ups.values()) == {"1"}

    def _sidecars(self) -> set[str]:
        """The scrape addresses of the scheduler pods that are not on their way out."""
        pods = self._airflow.get("pods", "--selector", "component=scheduler")["items"]
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return {f"{pod['status'].get('podIP')}:{_PORT}" for pod in staying}

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing now."""
        return list(self._get("alerts")["alerts"])

    def alert_rules(self) -> list[dict[str, Any]]:
        """Return every alerting rule that Prometheus loaded, with its state and last error."""
        groups = self._get("rules", type="alert")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _now(self) -> float:
        return float(self.query("vector(time())")[0]["value"][1])

    def _last_scrape(self) -> float:
        if not self.sidecar_up():
            return 0.0
        found = self.query(f"min(timestamp({_UP}))")
        return float(found[0]["value"][1]) if found else 0.0

    def _get(self, page: str, **query: str) -> dict[str, Any]:
        answer = json.loads(self._kubectl.service_get(self._service, self._port, f"api/v1/{page}", **query))
        if answer.get("status") != "success":
            raise StoryFailedError(f"Prometheus: {page}: {answer.get('error', answer)}")
        data: dict[str, Any] = answer["data"]
        return data
