# SPDX-License-Identifier: Apache-2.0
"""What a set of files says, at its last good state: a mounted Secret changes while the process runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

T = TypeVar("T")


class FileError(ValueError):
    """A file cannot be used; the message names its flag, the file and what is wrong."""


class LastGood(Generic[T]):
    """Builds a value from files, and again whenever their content changes.

    ``files`` maps the flag that names a file to its path; ``build`` gets their contents by flag. Raises
    FileError where the first build fails. Afterwards ``value`` is always one that was built whole.
    """

    def __init__(
        self, name: str, files: Mapping[str, Path], build: Callable[[Mapping[str, bytes]], T]
    ) -> None:
        self._name = name
        self._files = files
        self._build = build
        self._complaint = ""
        self._contents = self._read()
        self.value = build(self._contents)

    def refresh(self) -> None:
        """Take over what changed; one log line per change of state. Never raises.

        Contents are compared, not times: Kubernetes changes a mounted Secret by a symbolic link.
        """
        try:
            contents = self._read()
            if contents == self._contents:
                self._report("", changed=False)
                return
            # A pair that was caught half written does not fit together and is tried again.
            value = self._build(contents)
        except Exception as error:
            self._report(str(error), changed=False)
            return
        self._contents, self.value = contents, value
        self._report("", changed=True)

    def _report(self, complaint: str, *, changed: bool) -> None:
        before, self._complaint = self._complaint, complaint
        if changed:
            log.info("%s changed and is in use", self._name)
        elif complaint and complaint != before:
            log.warning(
                "%s stays as last read, since its new state cannot be used: %s", self._name, complaint
            )
        elif before and not complaint:
            log.info("%s is again as it was", self._name)

    def _read(self) -> dict[str, bytes]:
        return {flag: _content(flag, path) for flag, path in self._files.items()}


def _content(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{flag}: {path} cannot be read: {error.strerror or error}") from error
