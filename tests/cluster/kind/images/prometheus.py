# SPDX-License-Identifier: Apache-2.0
"""The stand-in for docker.io/prom/prometheus: Debian's Prometheus under the stock image's paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.kind import archive, debian
from tests.cluster.kind.images.base import Image, text_files
from tests.cluster.kind.paths import HERE
from tests.cluster.kind.versions import PROMETHEUS_IMAGE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.kind.commands import Log

UID = 65534
PACKAGES = ("prometheus", "base-files", "ca-certificates", "dash")
LEAVE_OUT = (
    "/usr/share/javascript/moment-timezone/data/unpacked/*",
    "/usr/share/perl/*",
    "/usr/lib/*/perl/*",
)
CONFIG = """\
scrape_configs:
- job_name: prometheus
  static_configs:
  - targets: ["localhost:9090"]
"""


def image() -> Image:
    return Image(
        name="prometheus",
        tags=(PROMETHEUS_IMAGE,),
        parts=(*PACKAGES, *LEAVE_OUT, CONFIG, HERE / "images" / "prometheus.py"),
        lay_out=_lay_out,
        config={
            "User": str(UID),
            "WorkingDir": "/prometheus",
            "Entrypoint": ["/bin/prometheus"],
            "Cmd": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
            "Env": [archive.PATH],
            "ExposedPorts": {"9090/tcp": {}},
        },
    )


def _lay_out(root: Path, log: Log) -> None:
    debian.extract(PACKAGES, root, log, leave_out=LEAVE_OUT)
    text_files(
        root,
        {
            "etc/passwd": "root:x:0:0:root:/:/bin/sh\n"
            f"nobody:x:{UID}:{UID}:nobody:/prometheus:/usr/sbin/nologin\n",
            "etc/group": f"root:x:0:\nnobody:x:{UID}:\n",
            "etc/prometheus/prometheus.yml": CONFIG,
        },
    )
    sh = root / "usr" / "bin" / "sh"
    sh.unlink(missing_ok=True)
    sh.symlink_to("dash")
    data = root / "prometheus"
    data.mkdir()
    log.run(["chown", f"{UID}:{UID}", data])
