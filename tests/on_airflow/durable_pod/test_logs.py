# SPDX-License-Identifier: Apache-2.0
"""The log of a pod whose reading breaks off: the provider's own reader over a server that is played."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.exceptions import TimeoutError as ReadTimedOut

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.airflow


class Server:
    """Lines by their age in seconds; the first read breaks off after ``first`` lines."""

    def __init__(self, ages: list[float], first: int, break_off: type[Exception] = HTTPError) -> None:
        self._now = datetime.now(tz=timezone.utc)
        self._ages, self._first, self._break_off = ages, first, break_off
        self.asked: list[int | None] = []
        self._ended = False
        self.api_client = SimpleNamespace(configuration=SimpleNamespace(host="h", ssl_ca_cert=None))

    def read_namespaced_pod_log(self, since_seconds: int | None = None, **_: Any) -> Any:
        self.asked.append(since_seconds)
        return SimpleNamespace(stream=lambda **_: self._lines(since_seconds), close=lambda: None)

    def _lines(self, since: int | None) -> Iterator[bytes]:
        for number, age in enumerate(self._ages):
            if len(self.asked) == 1 and number == self._first:
                raise self._break_off("nothing for five minutes")
            since_then = (datetime.now(tz=timezone.utc) - self._now).total_seconds()
            if since is None or age + since_then <= since:
                stamp = (self._now - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                yield f"{stamp} line-{number}\n".encode()
        self._ended = True

    def read_namespaced_pod(self, *_: Any, **__: Any) -> Any:
        from kubernetes import client

        running = not self._ended
        state = (
            client.V1ContainerState(running=client.V1ContainerStateRunning())
            if running
            else client.V1ContainerState(terminated=client.V1ContainerStateTerminated(exit_code=0))
        )
        status = client.V1ContainerStatus(
            name="base", state=state, image="i", image_id="", ready=running, restart_count=0
        )
        return client.V1Pod(
            metadata=client.V1ObjectMeta(name="pod", namespace="ns", uid="uid"),
            spec=client.V1PodSpec(containers=[client.V1Container(name="base")]),
            status=client.V1PodStatus(phase="Running", container_statuses=[status]),
        )


@pytest.fixture
def stock() -> type[Any]:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    return KubernetesPodOperator


def read_lines(operator: Any, server: Server) -> list[str]:
    operator.__dict__["client"] = server
    lines: list[str] = []

    def note(_container: str, message: str) -> str:
        lines.append(message.strip())
        return message

    operator.pod_manager.fetch_container_logs(
        pod=server.read_namespaced_pod(), container_name="base", follow=True, log_formatter=note
    )
    return lines


def durable(stock: type[Any]) -> Any:
    """An operator of a try that follows the pod."""
    from airflow_steadfast.durable_pod import install
    from airflow_steadfast.durable_pod import session as sessions

    cls = type("Ours", (stock,), {})
    install.make_durable(cls)
    operator = cls(task_id="t")
    operator.__dict__["client"] = Server([], 0)
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=0)
    store = SimpleNamespace(get=lambda _: None, set=lambda *_, **__: None)
    context = {"ti": ti, "run_id": "r"} | (
        {} if getattr(cls, sessions.EXACT_MARK) else {"task_state_store": store}
    )
    session = sessions.begin(operator, context)
    assert session is not None
    session.identity = session.identity_of(Server([], 0).read_namespaced_pod())
    return operator


AGES = [200.0, 100.0, 99.0, 98.5, 50.0]


@pytest.mark.parametrize("break_off", [ReadTimedOut, ProtocolError])
def test_a_reader_that_breaks_off_loses_no_line_and_doubles_a_second_at_most(
    stock: type[Any], break_off: type[Exception]
) -> None:
    server = Server(AGES, 2, break_off)
    operator = durable(stock)
    lines = read_lines(operator, server)
    if not hasattr(operator.pod_manager, "container_log_times"):
        # A provider that does not note its last line (10.8): two seconds can be lost, as upstream loses them.
        assert {"line-0", "line-1", "line-4"} <= set(lines)
        return
    assert sorted(set(lines)) == [f"line-{number}" for number in range(5)]
    assert len(lines) - len(set(lines)) <= 1
    assert server.asked[1] is not None
    assert 100 <= server.asked[1] <= 130


def test_upstream_loses_what_was_written_in_the_two_seconds_after_a_timeout(stock: type[Any]) -> None:
    lines = read_lines(stock(task_id="t"), Server(AGES, 2, ReadTimedOut))
    assert "line-2" not in lines
    assert "line-4" in lines
