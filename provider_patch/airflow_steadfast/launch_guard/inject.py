# SPDX-License-Identifier: Apache-2.0
"""Gives a worker pod of a custom template the patch, as the executor's default template has it.

Only within the executor's own namespace, where the volume's ConfigMap is, and only what the default
template shows: its volume, its mount, and the folder on PYTHONPATH. Not into a pod of another image that
says nothing of its PYTHONPATH: the image may, and a variable of the pod would take its place.
"""

from __future__ import annotations

import copy
import logging
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from airflow_steadfast.launch_guard import worker_pod

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("airflow_steadfast.launch_guard")

SECOND_NAME = "steadfast-code-injected"
"""The volume's name in a pod that has another volume of the template's name."""


class Injection:
    """``load`` reads the pod of the template file ``path``; ``namespace`` is where injecting is right.

    ``image`` is the executor's own, None where its template names it.
    """

    def __init__(
        self,
        load: Callable[[str], Any],
        path: str,
        namespace: str,
        root: PurePosixPath,
        image: str | None = None,
    ) -> None:
        self._load = load
        self._path = path
        self._namespace = namespace
        self._root = root
        self._own_image = image
        self._image = image
        self._seen: tuple[int, int] | None = None
        self._parts: tuple[Any, Any] | None = None

    def apply(self, pod: Any) -> bool:
        """Make the pod carry the patch; False, and the pod as it was, where that cannot be done."""
        if pod.metadata.namespace != self._namespace:
            return False
        parts = self._template_parts()
        if parts is None or not self._path_is_known(pod.spec.containers[0]):
            return False
        spec = copy.deepcopy(pod.spec)
        if not _add(spec, *parts, self._root):
            return False
        before, pod.spec = pod.spec, spec
        if worker_pod.carries_patch(pod, self._root):
            return True
        pod.spec = before
        return False

    def _template_parts(self) -> tuple[Any, Any] | None:
        """The default template's volume and mount of the code; read again when the file has changed."""
        status = Path(self._path).stat()
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            template = self._load(self._path)
            self._parts, self._seen = _parts(template, self._root), seen
            self._image = self._own_image or (template.spec.containers[0].image if self._parts else None)
        return self._parts

    def _path_is_known(self, container: Any) -> bool:
        """Whether nothing is lost by a PYTHONPATH in the pod: it has one, or its image is the default's."""
        return container.image == self._image or any(one.name == "PYTHONPATH" for one in container.env or ())


def _parts(template: Any, root: PurePosixPath) -> tuple[Any, Any] | None:
    if not template.spec or not template.spec.containers or not worker_pod.carries_patch(template, root):
        return None
    for mount in template.spec.containers[0].volume_mounts or ():
        path = PurePosixPath(mount.mount_path)
        if path == root or path in root.parents:
            volumes = {volume.name: volume for volume in template.spec.volumes or ()}
            return (volumes[mount.name], mount) if mount.name in volumes else None
    return None


def _add(spec: Any, volume: Any, mount: Any, root: PurePosixPath) -> bool:
    """Add volume, mount and path to the first container; False where another mount is in the way."""
    container = spec.containers[0]
    mounts = container.volume_mounts or []
    if not any(_covers(one, root) for one in mounts):
        volume, mount = copy.deepcopy(volume), copy.deepcopy(mount)
        same_name = next((one for one in spec.volumes or () if one.name == volume.name), None)
        if same_name is not None and same_name.to_dict() != volume.to_dict():
            volume.name = mount.name = SECOND_NAME
            same_name = next((one for one in spec.volumes if one.name == SECOND_NAME), None)
        if same_name is None:
            spec.volumes = [*(spec.volumes or ()), volume]
        container.volume_mounts = [*mounts, mount]
    _put_on_path(container, root)
    return True


def _covers(mount: Any, root: PurePosixPath) -> bool:
    path = PurePosixPath(mount.mount_path)
    return path == root or path in root.parents


def _put_on_path(container: Any, root: PurePosixPath) -> None:
    """A path that is not in the pod itself (``valueFrom``, ``envFrom``) is left as it is."""
    from kubernetes.client import models

    environment = container.env or []
    given = [one for one in environment if one.name == "PYTHONPATH"]
    if not given:
        if not container.env_from:
            container.env = [*environment, models.V1EnvVar(name="PYTHONPATH", value=str(root))]
    elif given[-1].value is not None:
        parts = [part for part in given[-1].value.split(":") if part]
        if not any(PurePosixPath(part) == root for part in parts):
            given[-1].value = ":".join([str(root), *parts])


class Wardrobe:
    """What each pod is shown to before its creation: it carries the patch, is given it, or is counted."""

    def __init__(self, root: PurePosixPath | None, injection: Injection | None) -> None:
        self._root = root
        self._injection = injection
        self._told = False

    def dress(self, pod: Any) -> bool:
        """Return whether the pod carries the patch now. Never raises: a pod it cannot read is left alone."""
        if self._root is None:
            return True
        try:
            if worker_pod.carries_patch(pod, self._root):
                return True
        except Exception:
            log.debug("the worker pod could not be looked at", exc_info=True)
            return True
        if self._inject(pod):
            self._tell(pod)
            return True
        worker_pod.warn_once(pod, self._root)
        return False

    def _inject(self, pod: Any) -> bool:
        try:
            return self._injection is not None and self._injection.apply(pod)
        except Exception:
            # the default template cannot be read, or is none: the pod is as it was
            log.debug("the worker pod could not be given the patch", exc_info=True)
            return False

    def _tell(self, pod: Any) -> None:
        if not self._told:
            self._told = True
            log.info(
                "Worker pod %s was given the patch (%s), its pod template lacks it. Said once.",
                pod.metadata.name,
                self._root,
            )


def wardrobe(executor: Any, *, inject: bool) -> Wardrobe:
    """Make the wardrobe of a started executor; without injection where its template cannot be named."""
    root = worker_pod.mounted_root()
    injection = None
    if root is not None and inject:
        try:
            from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

            config = executor.kube_config
            injection = Injection(
                PodGenerator.deserialize_model_file,
                config.pod_template_file,
                config.kube_namespace,
                root,
                config.kube_image,
            )
        except Exception:
            log.warning("Worker pods without the patch are not given it", exc_info=True)
    return Wardrobe(root, injection)
