# SPDX-License-Identifier: Apache-2.0
"""The images of Kubernetes itself: one for its four long-running programs, etcd, CoreDNS, pause."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cluster.kind import archive, debian, programs
from tests.cluster.kind.images.base import Image, text_files
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.versions import (
    COREDNS_IMAGE,
    ETCD_IMAGE,
    KUBE_IMAGES,
    KUBE_PROGRAMS,
    PAUSE_IMAGE,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log
    from tests.cluster.kind.programs import Program

# What kube-proxy calls. Whole packages: libxt_*.so are opened at run time, no `ldd` of iptables shows
# their libraries (libm.so.6 for libxt_statistic.so, needed once a Service has two endpoints).
PROXY_PACKAGES = ("iptables", "conntrack", "kmod")
IPTABLES_NAMES = tuple(f"ip{v}tables{action}" for v in ("", "6") for action in ("", "-save", "-restore"))


def kube(store: Path) -> Image:
    """The image of all four programs: one binary under four names, one image under four tags."""
    return Image(
        name="kube",
        tags=KUBE_IMAGES,
        parts=(programs.KUBE.artefact(store).key, *PROXY_PACKAGES, HERE / "images" / "components.py"),
        lay_out=lambda root, log: _lay_out_kube(store, root, log),
        config={"Env": [archive.PATH]},
    )


def etcd(store: Path) -> Image:
    return _single(store, programs.ETCD, ETCD_IMAGE, "usr/local/bin/etcd")


def coredns(store: Path) -> Image:
    return _single(store, programs.COREDNS, COREDNS_IMAGE, "coredns")


def pause() -> Image:
    """Debian's static catatonit, which reaps children and waits, as every pod's first container."""
    return Image(
        name="pause",
        tags=(PAUSE_IMAGE,),
        parts=(HERE / "images" / "components.py",),
        lay_out=_lay_out_pause,
        config={"Entrypoint": ["/pause", "-P"]},
    )


def _lay_out_kube(store: Path, root: Path, log: Log) -> None:
    debian.extract(PROXY_PACKAGES, root, log)
    for name in IPTABLES_NAMES:
        link = root / "usr" / "sbin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("xtables-nft-multi")
    folder = root / "usr" / "local" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(programs.KUBE.binary(store), folder / "kube")
    for name in KUBE_PROGRAMS:
        (folder / name).symlink_to("kube")
    text_files(root, {"etc/passwd": "root:x:0:0:root:/:/sbin/nologin\n", "etc/group": "root:x:0:\n"})


def _single(store: Path, program: Program, tag: str, path: str) -> Image:
    def lay_out(root: Path, _log: Log) -> None:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program.binary(store), target)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)

    config = {"Entrypoint": [f"/{path}"], "Env": [archive.PATH]}
    return Image(program.name, (tag,), (program.artefact(store).key, path), lay_out, config)


def _lay_out_pause(root: Path, log: Log) -> None:
    scratch = root.parent / "catatonit"
    debian.extract(["catatonit"], scratch, log)
    shutil.copy2(scratch / "usr" / "bin" / "catatonit", root / "pause")
    shutil.rmtree(scratch)
