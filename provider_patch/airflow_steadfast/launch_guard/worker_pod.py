# SPDX-License-Identifier: Apache-2.0
"""Does a worker pod that is about to be created carry the patch?

A custom pod template without the code mount would silently run the stock operator in that pod.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import airflow_steadfast

log = logging.getLogger("airflow_steadfast.launch_guard")


def mounted_root() -> PurePosixPath | None:
    """The folder of PYTHONPATH that this process has the patch from; None if it is part of the image.

    Symbolic links stay: a ConfigMap's files are links into a dated folder that no pod template names.
    """
    root = Path(airflow_steadfast.__file__).absolute().parent.parent
    inside_image = any(root.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
    return None if inside_image or root.name in {"site-packages", "dist-packages"} else PurePosixPath(root)


def carries_patch(pod: Any, root: PurePosixPath) -> bool:
    """Whether the pod's first container mounts ``root`` (or a folder above it) and has it on PYTHONPATH.

    A PYTHONPATH whose value is not in the pod itself (``valueFrom``, ``envFrom``, the image) is given
    the benefit of the doubt, the mount alone counts then.
    """
    container = pod.spec.containers[0]
    mounts = [PurePosixPath(mount.mount_path) for mount in container.volume_mounts or ()]
    if not any(mount == root or mount in root.parents for mount in mounts):
        return False
    values = [variable.value for variable in container.env or () if variable.name == "PYTHONPATH"]
    if not values or values[-1] is None:
        return bool(container.env_from or values)
    return any(PurePosixPath(part) == root for part in values[-1].split(":") if part)


_warned: set[str] = set()


def warn_once(pod: Any, root: PurePosixPath) -> None:
    """Log the first pod without the patch."""
    if "first" not in _warned:
        _warned.add("first")
        log.warning(
            "Worker pod %s does not carry the patch (no mount of %s on its PYTHONPATH): "
            "its pod template lacks it, tasks in it run natively. Said once.",
            pod.metadata.name,
            root,
        )
