# SPDX-License-Identifier: Apache-2.0
"""The container engine under kind: the user's Docker where one answers, else one of our own.

Ours has its own socket, data, bridge and cgroup, so that an installed Docker is never touched;
the two daemons are stopped by the pid files that they were started with.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind import firewall, leftovers, programs
from tests.cluster.kind.commands import ClusterError, Log, output, works
from tests.cluster.kind.prerequisites import which

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.kind.paths import Paths

PATIENCE = 60.0
NETWORK = "steadfast"


@dataclass(frozen=True)
class Engine:
    """An engine to talk to; ``own`` tells whether it is ours to start and stop."""

    paths: Paths
    own: bool

    @property
    def docker(self) -> str:
        """The machine's `docker`, looked for anew each time: this run may be what installs it.

        The tools folder may be on PATH; its `docker` is a front that calls what is found here,
        so it must never find itself.
        """
        return which("docker", outside=self.paths.bin) or "docker"

    def environment(self) -> dict[str, str]:
        """Return the variables under which `docker` and `kind` talk to this engine."""
        mine = {"KIND_EXPERIMENTAL_PROVIDER": "docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK": NETWORK}
        if self.own:
            mine["DOCKER_HOST"] = f"unix://{self.paths.docker_socket}"
        return mine

    def answers(self) -> bool:
        """Return whether the engine is up."""
        return works([self.docker, "info"], env=self.environment())

    def has_image(self, tag: str) -> bool:
        return works([self.docker, "image", "inspect", tag], env=self.environment())

    def start(self, log: Log) -> str:
        """Bring the engine up and remove what a killed one left. Idempotent.

        Raises:
            ClusterError: it did not answer in a minute; its log is named.
            CommandError: what was left over cannot be removed.
        """
        if self.answers():
            return "already up"
        if not self.own:
            raise ClusterError("Docker does not answer any more: start it and try again")
        self._end_daemons()
        cleaned = leftovers.clean(self.paths, log)
        self.paths.run.mkdir(parents=True, exist_ok=True)
        self._start_containerd(log)
        self._start_dockerd(log)
        return f"started ({cleaned})"

    def stop(self, log: Log) -> str:
        """Stop an engine of ours and remove all its traces; the user's is left alone. Idempotent."""
        if not self.own:
            return "left running (yours)"
        self._end_daemons()
        return f"stopped ({leftovers.clean(self.paths, log)})"

    def network(self, log: Log) -> None:
        """Have the nodes' network there. Idempotent."""
        env = self.environment()
        inspect = [
            self.docker,
            "network",
            "inspect",
            "--format",
            "{{(index .IPAM.Config 0).Subnet}}",
            NETWORK,
        ]
        if not works(inspect, env=env):
            options = ["--opt", f"com.docker.network.driver.mtu={_smallest_mtu()}"]
            if self.own:
                options += ["--opt", f"com.docker.network.bridge.name={self.paths.bridge}"]
            log.run([self.docker, "network", "create", "--driver", "bridge", *options, NETWORK], env=env)
        if self.own:
            firewall.open_for(self.paths.bridge, output(inspect, env=env).strip(), log)

    def _start_containerd(self, log: Log) -> None:
        run = self.paths.run
        config = run / "containerd.toml"
        config.write_text(
            "version = 2\n"
            f'root = "{self.paths.containerd_data}"\nstate = "{run}/containerd"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\n  address = "{self._containerd_socket}"\n'
        )
        child = self._daemon("containerd", ["--config", config, "--log-level", "warn"], log)
        self._wait("containerd", child, self._containerd_socket.exists)

    def _start_dockerd(self, log: Log) -> None:
        run, front = self.paths.run, programs.RUNTIME_FRONT.binary(self.paths.artefacts)
        # no configuration file of an installed Docker is read, no default bridge made
        config = run / "dockerd.json"
        config.write_text("{}\n")
        child = self._daemon(
            "dockerd",
            [
                *("--config-file", config, "--host", f"unix://{self.paths.docker_socket}"),
                *("--data-root", self.paths.docker_data, "--exec-root", run / "docker"),
                *("--pidfile", run / "docker.pid", "--containerd", self._containerd_socket),
                *("--bridge", "none", "--iptables=false", "--cgroup-parent", self.paths.cgroup_parent),
                *("--add-runtime", f"front={front}", "--default-runtime", "front"),
                *("--exec-opt", "native.cgroupdriver=cgroupfs", "--log-level", "warn"),
            ],
            log,
        )
        self._wait("dockerd", child, self.answers)

    @property
    def _containerd_socket(self) -> Path:
        return self.paths.run / "containerd.sock"

    def _daemon(self, name: str, args: list[str | Path], log: Log) -> subprocess.Popen[bytes]:
        program = which(name)
        if program is None:
            raise ClusterError(f"{name} is not there")
        words = [program, *map(str, args)]
        log.note(" ".join(words))
        self.paths.logs.mkdir(parents=True, exist_ok=True)
        with (self.paths.logs / f"{name}.log").open("ab") as stream:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.paths.run / f"{name}.pid").write_text(f"{child.pid}\n")
        return child

    def _wait(self, name: str, child: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        log = self.paths.logs / f"{name}.log"
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if child.poll() is not None:
                raise ClusterError(f"{name} ended at once, see {log}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} did not answer in {PATIENCE:.0f} s, see {log}")
            time.sleep(0.2)

    def _end_daemons(self) -> None:
        for name in ("dockerd", "containerd"):
            pid = leftovers.process_of(self.paths.run / f"{name}.pid", str(self.paths.run))
            if pid is not None:
                leftovers.end([pid], 20)


def choose(paths: Paths) -> Engine:
    """Return ours if it runs already, else the user's Docker if one answers, else ours to be started."""
    own = Engine(paths, own=True)
    if paths.docker_socket.exists() and own.answers():
        return own
    user = Engine(paths, own=False)
    mine = user.environment().get("DOCKER_HOST") or os.environ.get("DOCKER_HOST", "")
    if mine != f"unix://{paths.docker_socket}" and user.answers():
        return user
    return own


def _smallest_mtu() -> int:
    """Return the smallest MTU of the machine's real interfaces: packets of the nodes must fit through."""
    devices = Path("/sys/class/net").glob("*/device")
    return min([1500, *(int((device.parent / "mtu").read_text()) for device in devices)])


def running_containers(engine: Engine, cluster: str) -> list[str]:
    """Return the names of the running node containers of ``cluster``."""
    label = f"label=io.x-k8s.kind.cluster={cluster}"
    text = output(
        [engine.docker, "ps", "--filter", label, "--format", "{{.Names}}"], env=engine.environment()
    )
    return sorted(text.split())
