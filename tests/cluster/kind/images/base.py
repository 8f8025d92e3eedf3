# SPDX-License-Identifier: Apache-2.0
"""What all images have in common: a name, a key, a folder that is laid out, an archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.kind import archive, artefacts, debian
from tests.cluster.kind.versions import DEBIAN_SUITE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.kind.commands import Log


@dataclass(frozen=True)
class Image:
    """One image: its tags, what it is made from, who lays out its files, its config.

    ``parts`` are the inputs of the key: texts and files (see `artefacts.key_of`).
    ``lay_out`` fills the empty folder it gets with the image's files.
    """

    name: str
    tags: tuple[str, ...]
    parts: tuple[str | Path, ...]
    lay_out: Callable[[Path, Log], None]
    config: dict[str, Any]

    def artefact(self, store: Path) -> artefacts.Artefact:
        parts = [
            *self.parts,
            *self.tags,
            repr(sorted(self.config.items())),
            DEBIAN_SUITE,
            debian.architecture(),
        ]
        return artefacts.Artefact(store, f"image-{self.name}", artefacts.key_of(parts))

    def tar(self, store: Path) -> Path:
        """Return where the archive is once built."""
        return self.artefact(store).path / "image.tar"

    def build(self, store: Path, log: Log) -> str:
        """Build it unless it is in the store; return ``cached`` or ``built``."""
        return self.artefact(store).ensure(lambda folder: self._build(folder, log))

    def _build(self, folder: Path, log: Log) -> None:
        root = folder / "root"
        root.mkdir()
        self.lay_out(root, log)
        archive.write(root, self.tags, self.config, folder / "image.tar", log)
        artefacts.remove(root)


def text_files(root: Path, files: dict[str, str]) -> None:
    """Write small files below ``root``: path to content."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
