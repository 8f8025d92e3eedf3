# SPDX-License-Identifier: Apache-2.0
"""A real kube-apiserver and etcd of a test's own: no kubelet, no controllers, everything else real.

Pods stay as they were created until a test writes their status. The audit log names every request, so
a test can count what was asked of the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.postgres import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-test-token"
POWERLESS_TOKEN = "a-token-that-may-do-nothing"
_START_SECONDS = 120.0

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    verbs: [create]
    resources: [{group: "", resources: [pods]}]
  - level: Metadata
    resources: [{group: "", resources: [pods, pods/status]}]
  - level: None
"""


@dataclass(frozen=True)
class Request:
    """One answered request about pods, as the server's audit log has it."""

    verb: str
    name: str
    namespace: str
    status: int
    user_agent: str
    body: dict[str, Any] = field(default_factory=dict)
    """The pod of a create, as it was asked for; empty for other verbs."""


@dataclass(frozen=True)
class ApiServer:
    """A running server. ``kubeconfig`` may do everything, ``powerless_kubeconfig`` nothing (403)."""

    url: str
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def powerless_kubeconfig(self) -> Path:
        return self.folder / "powerless.kubeconfig"

    def client(self) -> Any:
        """Return a CoreV1Api for the test's own looks; its requests carry the user agent "test"."""
        from kubernetes import client, config

        loaded = client.Configuration()
        config.load_kube_config(str(self.kubeconfig), client_configuration=loaded)
        api = client.ApiClient(loaded)
        api.user_agent = "test"
        return client.CoreV1Api(api)

    def requests(self) -> list[Request]:
        """Return the requests about pods so far, oldest first, without the test's and the server's own."""
        lines = (self.folder / "audit.log").read_text(encoding="utf-8").splitlines()
        found = [_request(json.loads(line)) for line in lines if line.strip()]
        return [request for request in found if not request.user_agent.startswith(("test", "kube-apiserver"))]


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef") or {}
    return Request(
        verb=event["verb"],
        name=about.get("name", ""),
        namespace=about.get("namespace", ""),
        status=(event.get("responseStatus") or {}).get("code", 0),
        user_agent=event.get("userAgent", ""),
        body=event.get("requestObject") or {},
    )


def program(name: str) -> str:
    """Return the path of "kube-apiserver" or "etcd".

    From the environment variable STEADFAST_TEST_KUBE_APISERVER or STEADFAST_TEST_ETCD, PATH, or the
    cluster's tools, which are built on demand. Raises RuntimeError that says how to get it.
    """
    variable = f"STEADFAST_TEST_{name.upper().replace('-', '_')}"
    given = os.environ.get(variable) or shutil.which(name)
    if given:
        return given
    asked = subprocess.run(
        [sys.executable, "-m", "tests.cluster", "tool", name],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    path = asked.stdout.strip().splitlines()[-1:] or [""]
    if asked.returncode == 0 and Path(path[0]).exists():
        return path[0]
    raise RuntimeError(
        f"no {name} found: run `make cluster` once, or name one in {variable}. "
        f"`python3 -m tests.cluster tool {name}` said: {(asked.stderr or asked.stdout).strip()[-500:]}"
    )


@contextlib.contextmanager
def api_server(*, audit_policy: str = _AUDIT_POLICY) -> Iterator[ApiServer]:
    """Start etcd and a kube-apiserver on loopback in a fresh folder; stopped and removed afterwards.

    ``audit_policy`` decides what the audit log records, for a test that must see the bodies too.
    """
    binaries = program("etcd"), program("kube-apiserver")
    folder = Path(tempfile.mkdtemp(prefix="steadfast-apiserver-"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        etcd_port, peer_port, port = free_port(), free_port(), free_port()
        server = ApiServer(f"https://127.0.0.1:{port}", folder)
        _write_files(folder, audit_policy)
        started.append(_start(folder, "etcd", _etcd(binaries[0], folder, etcd_port, peer_port)))
        started.append(_start(folder, "kube-apiserver", _apiserver(binaries[1], folder, etcd_port, port)))
        _await_ready(server, started)
        _write_kubeconfigs(server)
        yield server
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _write_files(folder: Path, audit_policy: str) -> None:
    (folder / "audit.yaml").write_text(audit_policy, encoding="utf-8")
    (folder / "audit.log").touch()
    (folder / "tokens.csv").write_text(
        f"{TOKEN},admin,admin,system:masters\n{POWERLESS_TOKEN},nobody,nobody,nobodies\n", encoding="utf-8"
    )
    subprocess.run(
        ["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, stderr=subprocess.DEVNULL
    )


def _etcd(binary: str, folder: Path, port: int, peer_port: int) -> list[str]:
    return [
        binary,
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{port}",
        f"--advertise-client-urls=http://127.0.0.1:{port}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
        f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
        "--unsafe-no-fsync",
    ]


def _apiserver(binary: str, folder: Path, etcd_port: int, port: int) -> list[str]:
    return [
        binary,
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # No controller makes the "default" ServiceAccount that this plugin asks for.
        "--disable-admission-plugins=ServiceAccount",
        f"--service-account-key-file={folder / 'sa.key'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking",
        # by default it begins a new file after 100 MB, in the middle of somebody's count
        "--audit-log-maxsize=100000",
        "--endpoint-reconciler-type=none",
    ]


def _start(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _await_ready(server: ApiServer, started: list[subprocess.Popen[bytes]]) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is made by the server that is waited for
    request = urllib.request.Request(f"{server.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 - https on loopback
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in started):
            break
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(request, context=context, timeout=5).status == 200:  # noqa: S310 - the same
                return
        time.sleep(0.5)
    tail = (server.folder / "kube-apiserver.log").read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"the kube-apiserver did not become ready; its log ends with:\n{tail}")


def _write_kubeconfigs(server: ApiServer) -> None:
    for path, token in ((server.kubeconfig, TOKEN), (server.powerless_kubeconfig, POWERLESS_TOKEN)):
        cluster = {
            "server": server.url,
            "certificate-authority": str(server.folder / "certs" / "apiserver.crt"),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(document), encoding="utf-8")
