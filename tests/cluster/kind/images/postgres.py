# SPDX-License-Identifier: Apache-2.0
"""The stand-in for docker.io/library/postgres: Debian's PostgreSQL 15 under user 999."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.cluster.kind import debian
from tests.cluster.kind.images.base import Image, text_files
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.versions import POSTGRES_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log

UID = 999
PROGRAMS = "/usr/lib/postgresql/15/bin"
DATA = "/var/lib/postgresql/data"
ENTRYPOINT = HERE / "images" / "postgres-entrypoint"
PACKAGES = (
    "postgresql-15",
    *("base-files", "bash", "coreutils", "findutils", "grep", "procps", "sed", "util-linux"),
)
# Just-in-time compilation: 150 MB of LLVM. PostgreSQL goes without where the library is missing.
LEAVE_OUT = (
    "/usr/lib/*/libLLVM*",
    "/usr/lib/*/libz3.so*",
    "/usr/lib/postgresql/15/lib/bitcode/*",
    "/usr/lib/postgresql/15/lib/llvmjit*",
    "/usr/share/i18n/*",
)


def image() -> Image:
    return Image(
        name="postgres",
        tags=(POSTGRES_IMAGE,),
        parts=(*PACKAGES, *LEAVE_OUT, ENTRYPOINT, HERE / "images" / "postgres.py"),
        lay_out=_lay_out,
        config={
            "Entrypoint": ["/usr/local/bin/docker-entrypoint.sh"],
            "Cmd": ["postgres"],
            "Env": [
                f"PATH=/usr/local/bin:{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin",
                f"PGDATA={DATA}",
                "PG_MAJOR=15",
                "LANG=C.UTF-8",
            ],
            "ExposedPorts": {"5432/tcp": {}},
            "StopSignal": "SIGINT",  # PostgreSQL's fast shutdown
        },
    )


def _lay_out(root: Path, log: Log) -> None:
    debian.extract(PACKAGES, root, log, leave_out=LEAVE_OUT)
    text_files(
        root,
        {
            "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n"
            f"postgres:x:{UID}:{UID}:PostgreSQL:/var/lib/postgresql:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
            "etc/group": f"root:x:0:\npostgres:x:{UID}:\nnogroup:x:65534:\n",
            "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        },
    )
    sh = root / "usr" / "bin" / "sh"
    sh.unlink(missing_ok=True)
    sh.symlink_to("bash")
    target = root / "usr" / "local" / "bin" / "docker-entrypoint.sh"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ENTRYPOINT, target)
    (root / "docker-entrypoint-initdb.d").mkdir()
    for folder in (DATA, "/var/run/postgresql"):
        path = root / folder.removeprefix("/")
        path.mkdir(parents=True, exist_ok=True)
        log.run(["chown", "-R", f"{UID}:{UID}", path])
        path.chmod(0o1777)  # any user id that a cluster chooses
    log.run(["chown", f"{UID}:{UID}", root / "var" / "lib" / "postgresql"])
