# SPDX-License-Identifier: Apache-2.0
"""(g) What a retry of a KubernetesPodOperator asks for its pod: by name, against the label search."""

from __future__ import annotations

import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.bench.ratios import ratio
from tests.bench.result import Result, milliseconds
from tests.support.apiserver import TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import World

NAMESPACE = "bench-reattach"
LOWEST = 20.0
_FETCHED = re.compile(
    r'^apiserver_(?:cache|storage)_list_fetched_objects_total\{.*resource="?pods\b.*\} (\S+)$'
)
_AT_ONCE = 4


@dataclass
class Found:
    """The rounds of one way: seconds, bytes of the answer, objects and bytes that the server went through."""

    seconds: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)
    objects: list[float] = field(default_factory=list)


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Look for pods among many, in turn by name and by labels, as the durable pod and upstream do."""
    result = Result("Finding a running pod again")
    api = world.pods
    progress(f"creating {plan.reattach_pods} pods")
    api.create_namespace({"metadata": {"name": NAMESPACE}})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(lambda number: _create(api, number), range(plan.reattach_pods)))
    size = statistics.fmean(sizes)
    progress("looking for them")
    by_name, by_labels = Found(), Found()
    for number in range(-3, plan.reattach_rounds):  # the first ones open connections and fill caches
        which = (number * 7_919) % plan.reattach_pods
        for found, ask, about in (
            (by_name, api.read_namespaced_pod, {"name": _name(which)}),
            (by_labels, api.list_namespaced_pod, {"label_selector": _selector(which)}),
        ):
            seconds, answer, objects = _measure(api, ask, about)
            if number >= 0:
                found.seconds.append(seconds)
                found.answer.append(answer)
                found.objects.append(objects)
    rows = []
    for name, found in (("read by name", by_name), ("label search", by_labels)):
        objects = statistics.fmean(found.objects)
        rows.append(
            [
                name,
                milliseconds(statistics.median(found.seconds)),
                f"{statistics.fmean(found.answer):,.0f}",
                f"{objects:,.0f}",
                f"{objects * size / 1e6:,.3f} MB",
            ]
        )
    times = ratio(by_labels.seconds, by_name.seconds)
    read = ratio(by_labels.objects, by_name.objects)
    result.table(
        ["", "time", "bytes of the answer", "pods that the server goes through", "that is, of their JSON"],
        [*rows, ["ratio", times.text(1), "", read.text(0), read.text(0)]],
    )
    for what, estimate in (("time", times), ("bytes that the server goes through", read)):
        result.promise(
            f"Finding a recorded pod among {plan.reattach_pods:,} of its namespace: {what}, the label search "
            f"against the read by name, at least {LOWEST:.0f} (lower 95 % bound)",
            estimate.text(1),
            met=estimate.lower >= LOWEST,
        )
    result.say(
        f"{plan.reattach_pods:,} pods of {size:,.0f} bytes in one namespace, each of a task of its own. The "
        "requests are those of the durable pod (`GET` of one pod) and of upstream's `find_pod` (the labels "
        "of the task instance, `already_checked!=True`, `!airflow-worker`), through one client, in turn. "
        "The answer holds one pod either way; what a search costs is that the server goes through every pod "
        "of the namespace (`apiserver_cache_list_fetched_objects_total`)."
    )
    result.raw = {"by_name": by_name.__dict__, "by_labels": by_labels.__dict__}
    return result


def _measure(api: Any, ask: Any, about: dict[str, str]) -> tuple[float, int, float]:
    """Return the seconds, the answer's bytes and the objects that were gone through; a read is of one."""
    before = _fetched(api)
    started = time.perf_counter()
    found = ask(namespace=NAMESPACE, **about)
    seconds = time.perf_counter() - started
    if hasattr(found, "items") and len(found.items) != 1:
        raise RuntimeError(f"{len(found.items)} pods match {about}")
    objects = _fetched(api) - before
    answer = ask(namespace=NAMESPACE, _preload_content=False, **about)
    return seconds, len(answer.data), max(1.0, objects)


def _fetched(api: Any) -> float:
    """How many pods the server has gone through for lists so far."""
    client = api.api_client
    answer = client.rest_client.pool_manager.request(
        "GET", f"{client.configuration.host}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    lines = answer.data.decode().splitlines()
    return sum(float(match[1]) for line in lines if (match := _FETCHED.match(line)))


def _name(number: int) -> str:
    return f"extract-orders-{number:05d}"


def _labels(number: int) -> dict[str, str]:
    return {
        "dag_id": "sales",
        "task_id": f"extract_orders_{number}",
        "run_id": "scheduled__2026-01-01T0000000000-0123456789",
        "kubernetes_pod_operator": "True",
    }


def _selector(number: int) -> str:
    labels = ",".join(f"{key}={value}" for key, value in sorted(_labels(number).items()))
    return f"{labels},already_checked!=True,!airflow-worker"


def _create(api: Any, number: int) -> int:
    """Create a pod as the operator does; returns its size in bytes."""
    container = {
        "name": "base",
        "image": "docker.io/apache/airflow:3.3.2",
        "command": ["bash", "-cx"],
        "args": ["python -m extract --table orders --day 2026-01-01 --target /data/out"],
        "env": [{"name": f"SETTING_{index}", "value": f"value of setting {index}"} for index in range(12)],
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    body = {
        "metadata": {
            "name": _name(number),
            "labels": {**_labels(number), "try_number": "1", "airflow_version": "3.3.2"},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
    return len(api.create_namespaced_pod(NAMESPACE, body, _preload_content=False).data)
