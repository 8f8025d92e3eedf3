# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes four times a second, with certificate and token, while sidecars come and go."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from airflow_steadfast.signals import Totals
from tests.support.certificates import Authority
from tests.support.sidecar_process import PATIENCE_SECONDS, sidecar_process

pytestmark = pytest.mark.promtool

DECIDED = "steadfast_launches_decided_total"
ROUNDS = 3
CONFIGURATION = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
  - job_name: steadfast
    scheme: https
    authorization: {{credentials_file: {folder}/token}}
    tls_config:
      ca_file: {folder}/ca
      cert_file: {folder}/client-cert
      key_file: {folder}/client-key
      server_name: localhost
    static_configs: [{{targets: {targets}}}]
"""


def free_ports(count):
    with contextlib.ExitStack() as used:
        return [
            used.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)
        ]


class Prometheus:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, query):
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - loopback
            found = json.load(answer)["data"]["result"]
        return {series["metric"]["instance"]: float(series["value"][1]) for series in found}

    def await_answer(self, query, instance, expected):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if self.ask(query).get(instance) == expected:
                    return
            assert time.monotonic() < deadline, f"{query} is not {expected} for {instance}"
            time.sleep(0.05)


@contextlib.contextmanager
def prometheus(folder, targets):
    (port,) = free_ports(1)
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(folder=folder, targets=json.dumps(targets)))
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stderr=log) as running:
        try:
            yield Prometheus(port)
        finally:
            running.kill()


def test_no_increment_is_lost_over_a_rolling_restart(tmp_path):
    authority = Authority()
    server, client = authority.issue("server"), authority.issue("prometheus")
    for name, content in {
        "ca": authority.cert,
        "cert": server.cert,
        "key": server.key,
        "client-cert": client.cert,
        "client-key": client.key,
        "token": b"a-token",
    }.items():
        (tmp_path / name).write_bytes(content)
    access = [
        *("--tls-cert-file", f"{tmp_path}/cert", "--tls-key-file", f"{tmp_path}/key"),
        *("--tls-client-ca-file", f"{tmp_path}/ca", "--bearer-token-file", f"{tmp_path}/token"),
    ]
    ports = free_ports(ROUNDS)
    instances = [f"127.0.0.1:{port}" for port in ports]
    trusting = authority.trusting()
    with prometheus(tmp_path, instances) as asked:
        for turn, instance in enumerate(instances, start=1):
            folder = tmp_path / str(turn)
            folder.mkdir()
            scheduler = Totals()
            scheduler.configure(folder)
            # The timer is far away: the last counts come by the read that SIGTERM asks for.
            flags = ["--listen", instance, "--handoff-dir", str(folder), "--poll-interval", "300"]
            with sidecar_process(*flags, *access, tls=trusting) as sidecar:
                asked.await_answer("up", instance, 1)
                asked.await_answer(DECIDED, instance, 0)
                scheduler.increment(DECIDED, turn)
                scheduler.flush(force=True)
                assert sidecar.terminate() == 0
                assert "the last counts were scraped" in sidecar.log
        for turn, instance in enumerate(instances, start=1):
            asked.await_answer(f"last_over_time({DECIDED}[1h])", instance, turn)
            asked.await_answer(f"max_over_time({DECIDED}[1h]) - min_over_time({DECIDED}[1h])", instance, turn)
