# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that is there when a test wants it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from tests.support.certificates import Authority
from tests.support.sidecar_process import PATIENCE_SECONDS

TARGETS = 3
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


class Prometheus:
    """A running server, and the ports that it scrapes; each is held until a sidecar takes it."""

    def __init__(self, port, held, folder, trusting):
        self.url = f"http://127.0.0.1:{port}"
        self.held = held
        self.folder = folder
        self.trusting = trusting

    def free_target(self):
        """Give up one of the ports; return its instance."""
        listener = self.held.pop()
        host, port = listener.getsockname()
        listener.close()
        return f"{host}:{port}"

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


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
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
        (folder / name).write_bytes(content)
    with contextlib.ExitStack() as used:
        held = [used.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(TARGETS)]
        targets = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in held]
        configuration = CONFIGURATION.format(folder=folder, targets=json.dumps(targets))
        (folder / "prometheus.yml").write_text(configuration)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        log = used.enter_context((folder / "prometheus.log").open("wb"))
        running = used.enter_context(subprocess.Popen(command, stderr=log))
        used.callback(running.kill)
        yield Prometheus(port, held, folder, authority.trusting())


@pytest.fixture(scope="session", autouse=True)
def _begun_early(request):
    """Prometheus looks for its targets 5 seconds after its start: other tests run meanwhile."""
    wanted = any("prometheus" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if wanted and shutil.which("prometheus"):
        request.getfixturevalue("prometheus")
