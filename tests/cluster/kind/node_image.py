# SPDX-License-Identifier: Apache-2.0
"""The node image, assembled: Debian files, Kubernetes, and every image that the cluster will ask for."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tests.cluster.kind import artefacts, debian, programs
from tests.cluster.kind.artefacts import Artefact
from tests.cluster.kind.commands import output, works
from tests.cluster.kind.images import airflow, components, postgres, prometheus
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.steps import Step
from tests.cluster.kind.versions import CLUSTER, DEBIAN_SUITE, KUBERNETES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log
    from tests.cluster.kind.engine import Engine
    from tests.cluster.kind.images.base import Image

FILES = HERE / "node"
PACKAGES = (
    *("catatonit", "conntrack", "containerd", "containernetworking-plugins", "iproute2", "iptables"),
    *("kmod", "mount", "procps", "runc"),
)
KUBE_NAMES = ("kubelet", "kubeadm", "kubectl")
# file in node/ -> where it goes in the image
PLACES = {
    "entrypoint": "usr/local/bin/entrypoint",
    "systemctl": "usr/local/bin/systemctl",
    "crictl": "usr/local/bin/crictl",
    "containerd.toml": "etc/containerd/config.toml",
    "kubelet.conf": "kind/kubelet.conf.d/10-node.conf",
    "pod-network.conflist": "kind/pod-network.conflist",
    "default-cni.yaml": "kind/manifests/default-cni.yaml",
    "default-storage.yaml": "kind/manifests/default-storage.yaml",
}
NOT_NEEDED = ("usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1", "usr/bin/containerd-stress")


@dataclass(frozen=True)
class NodeImage:
    """The node image that belongs to this clone's files."""

    store: Path

    def images(self) -> list[Image]:
        """All preloaded images."""
        store = self.store
        return [
            components.kube(store),
            components.etcd(store),
            components.coredns(store),
            components.pause(),
            airflow.image(store),
            postgres.image(),
            prometheus.image(),
        ]

    @cached_property
    def tag(self) -> str:
        """The name of the Docker image, with the hash of everything in it."""
        keys = [image.artefact(self.store).key for image in self.images()]
        return (
            f"{CLUSTER}/node:{artefacts.key_of([FILES, self._debian().key, *keys, HERE / 'node_image.py'])}"
        )

    def _debian(self) -> Artefact:
        parts = [*PACKAGES, DEBIAN_SUITE, debian.architecture()]
        return Artefact(self.store, "node-debian", artefacts.key_of(parts))

    def steps(self, engine: Engine) -> list[Step]:
        """Return all steps up to the image in ``engine``, the longest first."""
        store = self.store
        compiled = [
            Step(name, lambda log, p=program: p.build(store, log), ("go", *needs))  # type: ignore[misc]  # bound default
            for name, program, needs in (
                ("compile kubernetes", programs.KUBE, ()),
                ("compile coredns", programs.COREDNS, ("compile kubernetes",)),  # shares its packages
                ("compile etcd", programs.ETCD, ()),
            )
        ]
        needs = {
            "kube": ("compile kubernetes", "debian packages"),
            "etcd": ("compile etcd",),
            "coredns": ("compile coredns",),
            "airflow": ("airflow packages", "debian packages"),
        }
        images = [
            Step(
                f"image {image.name}",
                lambda log, i=image: i.build(store, log),  # type: ignore[misc]  # bound default
                needs.get(image.name, ("debian packages",)),
            )
            for image in self.images()
        ]
        return [
            *compiled,
            Step("airflow packages", lambda log: airflow.install_packages(store, log)),
            Step("node debian", self._lay_debian, ("debian packages",)),
            *images,
            Step(
                "node image",
                lambda log: self._assemble(engine, log),
                ("engine", "node debian", *(step.name for step in images)),
            ),
        ]

    def _lay_debian(self, log: Log) -> str:
        return self._debian().ensure(lambda folder: debian.install(PACKAGES, folder / "root", log))

    def _assemble(self, engine: Engine, log: Log) -> str:
        work = self.store / ".draft-node"
        artefacts.remove(work)
        root = work / "root"
        work.mkdir(parents=True)
        log.run(["cp", "-a", "--reflink=auto", self._debian().path / "root", root])
        self._node_files(root)
        preload: list[str | Path] = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            FILES / "preload",
            root,
        ]
        log.run([*preload, *(image.tar(self.store) for image in self.images())])
        changes = (
            'ENTRYPOINT ["/usr/bin/catatonit","--","/usr/local/bin/entrypoint"]',
            "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        words = [word for change in changes for word in ("--change", change)]
        # through a pipe: as a file the archive would be written and read once more, gigabytes of it
        pipe = 'set -o pipefail; tar --numeric-owner --one-file-system -C "$0" -cf - . | "$@"'
        into = [engine.docker, "import", *words, "-", self.tag]
        log.run(["bash", "-c", pipe, root, *into], env=engine.environment())
        self._forget_older(engine, log)
        artefacts.remove(work)
        return "built"

    def _forget_older(self, engine: Engine, log: Log) -> None:
        """Remove node images of other keys: all but the newest, and but those that a node runs from."""
        env = engine.environment()
        listed = output([engine.docker, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"], env=env)
        others = [tag for tag in listed.split() if tag.startswith(f"{CLUSTER}/node:") and tag != self.tag]
        for tag in others[1:]:  # the newest comes first
            log.note(f"older image {tag}")
            works([engine.docker, "image", "rm", tag], env=env, timeout=120)

    def _node_files(self, root: Path) -> None:
        kube = root / "usr" / "local" / "bin" / "kube"
        shutil.copy2(programs.KUBE.binary(self.store), kube)
        for name in KUBE_NAMES:
            (kube.parent / name).symlink_to("kube")
        for name, place in PLACES.items():
            target = root / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(FILES / name, target)
        (root / "kind" / "version").write_text(KUBERNETES)
        for folder in ("etc/cni/net.d", "etc/kubernetes/manifests"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name in NOT_NEEDED:
            (root / name).unlink(missing_ok=True)
        # the packages' own settings and state, made when they were installed
        for path in ("var/lib/containerd", "etc/cni/net.d/87-podman-bridge.conflist"):
            artefacts.remove(root / path)
