# SPDX-License-Identifier: Apache-2.0
"""Finds and removes what a killed engine of ours left behind, and nothing else.

Everything found here carries a mark of ours: a path below the cache or run folder, the name of
our bridge, our cgroup. Reading is in pure functions; `clean` acts.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind.artefacts import remove
from tests.cluster.kind.commands import CommandError, Log, output
from tests.cluster.kind.prerequisites import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.cluster.kind.paths import Paths

CGROUPS = Path("/sys/fs/cgroup")
ENGINE_PROGRAMS = frozenset(
    ("dockerd", "containerd", "containerd-shim-runc-v2", "runc", "runtime-front", "docker-proxy")
)
TABLES = ("nat", "filter", "raw", "mangle")


def mounts_below(mountinfo: str, folders: Sequence[Path]) -> list[str]:
    """Return the mount points at or below ``folders``, deepest first."""
    points = [line.split()[4].replace("\\040", " ") for line in mountinfo.splitlines() if line.strip()]
    mine = {p for p in points for f in folders if p == str(f) or p.startswith(f"{f}/")}
    return sorted(mine, key=lambda point: (point.count("/"), point), reverse=True)


def rules_naming(saved: str, bridge: str, subnets: Iterable[str] = ()) -> list[list[str]]:
    """Return the delete commands for the rules of ``bridge`` or ``subnets`` in ``iptables-save``'s text."""
    marks = {bridge, *subnets}
    rules = []
    for line in saved.splitlines():
        words = line.split()
        if len(words) > 2 and words[0] == "-A" and marks.intersection(words):
            rules.append(["-D", *words[1:]])
    return rules


def subnets_of(addresses: str) -> list[str]:
    """Return the networks in the text of ``ip -4 -o address show``, as iptables writes them."""
    found = []
    for line in addresses.splitlines():
        words = line.split()
        if "inet" in words:
            found.append(str(ipaddress.ip_interface(words[words.index("inet") + 1]).network))
    return found


def process_of(pid_file: Path, mark: str, proc: Path = Path("/proc")) -> int | None:
    """Return the living process that ``pid_file`` names, if its command line holds ``mark``.

    A number left by a killed process may belong to somebody else by now: without the mark it is stale.
    """
    try:
        pid = int(pid_file.read_text())
        command = (proc / str(pid) / "cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if mark.encode() in command else None


def engine_processes(mark: str, proc: Path = Path("/proc")) -> list[int]:
    """Return the engine's processes (`ENGINE_PROGRAMS`) that have ``mark`` in their command line."""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                program = Path(os.fsdecode(words[0])).name
                if program in ENGINE_PROGRAMS and any(mark.encode() in word for word in words):
                    found.append(int(folder.name))
    return found


def processes_in(cgroup: str, root: Path = CGROUPS) -> set[int]:
    """Return the processes in ``cgroup`` and below, in every controller's tree."""
    found: set[int] = set()
    trees = [root / cgroup.lstrip("/"), *root.glob(f"*/{cgroup.lstrip('/')}")]
    for tree in trees:
        for file in tree.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found.update(int(word) for word in file.read_text().split())
    return found


def end(pids: Iterable[int], seconds: float = 10) -> None:
    """End processes: SIGTERM, then SIGKILL for what is still there after ``seconds``."""
    left = set(pids)
    for name, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, name)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if _alive(pid)}
            time.sleep(0.1)


def clean(paths: Paths, log: Log) -> str:
    """Remove everything that an engine of ours left. Call only while none of ours runs. Idempotent.

    Returns what was found, as a few words.
    """
    found = []
    strays = {*processes_in(paths.cgroup_parent), *engine_processes(str(paths.run))}
    if strays:
        log.note(f"processes: {sorted(strays)}")
        # the containers' own processes are worth no farewell: their engine is gone
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end(strays, 5)
        found.append(f"{len(strays)} processes")
    found += _unmount(paths, log)
    found += _network(paths, log)
    remove(paths.run)
    _remove_cgroups(paths.cgroup_parent)
    return f"removed {', '.join(found)}" if found else "nothing left over"


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _unmount(paths: Paths, log: Log) -> list[str]:
    folders = [paths.docker_data, paths.containerd_data, paths.run, paths.artefacts]
    points = mounts_below(Path("/proc/self/mountinfo").read_text(), folders)
    for point in points:
        log.run(["umount", "-l", point])
    return [f"{len(points)} mounts"] if points else []


def _network(paths: Paths, log: Log) -> list[str]:
    found = []
    ip = which("ip")
    if ip and Path("/sys/class/net", paths.bridge).exists():
        subnets = subnets_of(output([ip, "-4", "-o", "address", "show", "dev", paths.bridge]))
        log.run([ip, "link", "delete", paths.bridge])
        found.append(f"interface {paths.bridge}")
    else:
        subnets = []
    save, change = which("iptables-save"), which("iptables")
    removed = 0
    for table in TABLES if save and change else ():
        try:
            saved = output([str(save), "-t", table])
        except CommandError as error:  # a table that this kernel does not have
            log.note(str(error))
            continue
        for rule in rules_naming(saved, paths.bridge, subnets):
            with contextlib.suppress(CommandError):
                log.run([str(change), "-w", "-t", table, *rule])
                removed += 1
    return [*found, f"{removed} iptables rules"] if removed else found


def _remove_cgroups(cgroup: str) -> None:
    name = cgroup.lstrip("/")
    for tree in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        for folder in sorted(tree.rglob("*"), key=lambda p: len(p.parts), reverse=True):
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
        with contextlib.suppress(OSError):
            tree.rmdir()
