# SPDX-License-Identifier: Apache-2.0
"""What a task of the worker's benchmark does: note how much CPU the worker used before it."""

from __future__ import annotations

import os
from pathlib import Path


def note_cpu() -> None:
    """Write the CPU nanoseconds of this process and of its supervisor to the file BENCH_CPU_FILE names.

    From the kernel's scheduler statistics: the usual CPU times count in steps of 10 ms.
    """
    spent = 0
    for process in (os.getpid(), os.getppid()):
        for thread in Path(f"/proc/{process}/task").iterdir():
            spent += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    Path(os.environ["BENCH_CPU_FILE"]).write_text(str(spent), encoding="ascii")
