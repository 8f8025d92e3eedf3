# SPDX-License-Identifier: Apache-2.0
"""Writes a folder as an image archive: one layer, in the form that `docker load` and containerd read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

from tests.cluster.kind.debian import architecture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.cluster.kind.commands import Log

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write(root: Path, tags: Sequence[str], config: Mapping[str, Any], target: Path, log: Log) -> None:
    """Write the files below ``root``, owners and modes as they are, as the image ``tags`` to ``target``.

    ``config`` is the image's ``config`` object (``Entrypoint``, ``Cmd``, ``Env``, ``User``, ``WorkingDir``).
    """
    layer = target.with_suffix(".layer")
    log.run(["tar", "--numeric-owner", "--sort=name", "-C", root, "-cf", layer, "."])
    with layer.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    image = json.dumps(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "steadfast tests/cluster"}],
        }
    ).encode()
    image_name = f"{hashlib.sha256(image).hexdigest()}.json"
    manifest = [{"Config": image_name, "RepoTags": list(tags), "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(target, "w") as tar:
        tar.add(layer, arcname=f"{digest}/layer.tar")
        for name, data in ((image_name, image), ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    layer.unlink()
