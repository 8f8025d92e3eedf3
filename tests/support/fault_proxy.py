# SPDX-License-Identifier: Apache-2.0
"""A proxy before a real kube-apiserver that delays, refuses, cuts and forgets as a test says.

It terminates TLS with a certificate of its own; ``kubeconfig`` points a client at it. Watches stream
through. It is a process of its own, so every process that knows its folder can set faults::

    with api_server() as server, fault_proxy(server) as proxy:
        lost = proxy.add(Fault("drop_reply", forward=True, count=1))   # stored, the reply never comes
        busy = proxy.add(refusal(429, retry_after=2, count=3))
        ...
        proxy.clear()
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.faults import Fault, refusal
from tests.support.postgres import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.apiserver import ApiServer

__all__ = ["Fault", "FaultProxy", "Passed", "fault_proxy", "refusal"]

ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Passed:
    """A request as the proxy saw it.

    ``status`` is the server's (or the fault's own, where the server never saw it), 0 while there is
    none; ``sent`` whether a reply went to the client.
    """

    method: str
    path: str
    query: str
    body: str
    fault: str
    status: int
    sent: bool


@dataclass(frozen=True)
class FaultProxy:
    """A running proxy, told by its folder; the object may be made again in another process."""

    folder: Path
    port: int

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def add(self, fault: Fault) -> int:
        """Set a fault; returns its number."""
        return int(self._tell(verb="add", fault=fault.__dict__))

    def remove(self, number: int) -> None:
        """Take a fault away; requests that it held go on. Idempotent."""
        self._tell(verb="remove", number=number)

    def clear(self) -> None:
        """Take all faults away."""
        self._tell(verb="remove", number=None)

    def hits(self, number: int) -> int:
        """How many requests a fault that is set has hit."""
        return int(self._tell(verb="look", number=number)["hit"])

    def waiting(self, number: int) -> int:
        """How many requests a "hold" or "stall" holds now."""
        return int(self._tell(verb="look", number=number)["waiting"])

    def await_waiting(self, number: int, count: int, patience: float = 60.0) -> None:
        """Return when a fault holds at least ``count``; raises TimeoutError after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while (held := self.waiting(number)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the proxy holds {held} requests, {count} were awaited")
            time.sleep(0.02)

    def log(self, since: int = 0) -> list[Passed]:
        """Return the requests so far, oldest first, without the first ``since``."""
        return [Passed(**line) for line in self._tell(verb="log", since=since)]

    def _tell(self, **order: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self.folder / "control.sock"))
            link.sendall(json.dumps(order).encode() + b"\n")
            with link.makefile("rb") as answers:
                line = answers.readline()
        if not line:
            raise RuntimeError(f"the fault proxy did not take {order}: see {self.folder / 'proxy.log'}")
        return json.loads(line)


@contextlib.contextmanager
def fault_proxy(server: ApiServer) -> Iterator[FaultProxy]:
    """Start a proxy before ``server`` on loopback; stopped and its folder removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="steadfast-proxy-"))
    proxy = FaultProxy(folder, free_port())
    _write_certificates(folder)
    shutil.copy(server.folder / "certs" / "apiserver.crt", folder / "server-ca.crt")
    _write_kubeconfig(proxy, server)
    where = urlsplit(server.url)
    command = [sys.executable, "-m", "tests.support.fault_proxy_server", str(folder), str(proxy.port)]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(where.hostname), str(where.port)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        _await_ready(proxy, process)
        yield proxy
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _await_ready(proxy: FaultProxy, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, RuntimeError):
            proxy.log()
            return
        time.sleep(0.05)
    raise RuntimeError(f"the fault proxy did not start:\n{(proxy.folder / 'proxy.log').read_text()[-2000:]}")


def _write_certificates(folder: Path) -> None:
    """A CA, and a certificate for 127.0.0.1 by it."""
    (folder / "leaf.ext").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    ca = "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=fault-proxy-ca -keyout ca.key -out ca.crt"
    leaf = "x509 -req -in proxy.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile leaf.ext"
    for command in (
        f"{ca} -addext keyUsage=critical,keyCertSign,cRLSign",
        "req -newkey rsa:2048 -nodes -subj /CN=fault-proxy -keyout proxy.key -out proxy.csr",
        f"{leaf} -out proxy.crt",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def _write_kubeconfig(proxy: FaultProxy, server: ApiServer) -> None:
    document = json.loads(server.kubeconfig.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{proxy.port}",
        "certificate-authority": str(proxy.folder / "ca.crt"),
    }
    proxy.kubeconfig.write_text(json.dumps(document), encoding="utf-8")
