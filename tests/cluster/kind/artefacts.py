# SPDX-License-Identifier: Apache-2.0
"""The cache of built things: a folder per name and key, complete or not there at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEEP = 2


def key_of(parts: Iterable[str | Path]) -> str:
    """Return 12 hex digits for what something is made from.

    A ``str`` counts as it is; a ``Path`` counts with its content and, below a folder, with the
    relative names of its files and whether they may be executed. Where a clone lies does not count.

    Raises:
        FileNotFoundError: a path is not there.
    """
    digest = hashlib.sha256()

    def add(kind: str, data: bytes) -> None:
        digest.update(f"{kind} {len(data)}\n".encode())
        digest.update(data)

    for part in parts:
        if isinstance(part, str):
            add("text", part.encode())
            continue
        if part.is_dir():
            files = sorted(p for p in part.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        else:
            files = [part]
        for file in files:
            name = file.relative_to(part if part.is_dir() else part.parent).as_posix()
            add("file", f"{name} {'x' if os.access(file, os.X_OK) else '-'}".encode())
            add("content", file.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Artefact:
    """A built folder ``<store>/<name>-<key>``; its presence means that it is complete."""

    store: Path
    name: str
    key: str

    @property
    def path(self) -> Path:
        return self.store / f"{self.name}-{self.key}"

    def ready(self) -> bool:
        return self.path.is_dir()

    def ensure(self, build: Callable[[Path], None]) -> str:
        """Build it unless it is there; return ``cached`` or ``built``.

        ``build`` fills an empty folder that takes the final name only afterwards, so a killed
        build leaves nothing that looks finished. Two processes that want it build it once.
        Older keys of the name go, but for the newest.
        """
        if self.ready():
            os.utime(self.path)
            return "cached"
        self.store.mkdir(parents=True, exist_ok=True)
        with (self.store / f".lock-{self.name}").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.ready():  # by whoever held the lock
                return "cached"
            draft = self.store / f".draft-{self.name}-{self.key}"
            remove(draft)
            draft.mkdir(parents=True)
            build(draft)
            draft.rename(self.path)
            self._prune()
        return "built"

    def _prune(self) -> None:
        mine = [p for p in self.store.glob(f"{self.name}-*") if len(p.name) == len(self.path.name)]
        for old in sorted(mine, key=lambda p: p.stat().st_mtime, reverse=True)[KEEP:]:
            remove(old)


def remove(folder: Path) -> None:
    """Remove a folder if it is there. Idempotent. Refuses one that still has something mounted in it.

    Raises:
        OSError: a mount point lies below it, or a file cannot be removed.
    """
    for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder.exists() else ():
        point = line.split()[4]
        if point == str(folder) or point.startswith(f"{folder}/"):
            raise OSError(f"{point} is still mounted: `umount -R {point}` and start again")
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
