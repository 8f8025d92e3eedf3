# SPDX-License-Identifier: Apache-2.0
"""What a killed cluster left is told from everything else by marks of ours."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.kind import commands
from tests.cluster.kind.commands import end_orphans, started
from tests.cluster.kind.firewall import rules
from tests.cluster.kind.leftovers import (
    engine_processes,
    mounts_below,
    process_of,
    processes_in,
    rules_naming,
    subnets_of,
)

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
80 22 0:50 / /run/steadfast-ab12cd/docker/netns/1 rw - nsfs nsfs rw
81 22 0:51 / /home/me/.cache/steadfast/docker/overlay2/f00/merged rw - overlay overlay rw
82 81 0:52 / /home/me/.cache/steadfast/docker/overlay2/f00/merged/dev/my\040disk rw - tmpfs tmpfs rw
83 22 0:53 / /home/me/.cache/steadfast-other/x rw - tmpfs tmpfs rw
84 22 0:54 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw
"""

RULES = """
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o sf-ab12cd -j DOCKER
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER -d 172.18.0.3/32 ! -i sf-ab12cd -o sf-ab12cd -p tcp -m tcp --dport 6443 -j ACCEPT
-A FORWARD -i sf-ab12cd2 -j ACCEPT
COMMIT
*nat
-A POSTROUTING -s 172.18.0.0/16 ! -o eth9 -j MASQUERADE
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
"""


def test_mounts_of_ours_come_deepest_first():
    folders = [Path("/run/steadfast-ab12cd"), Path("/home/me/.cache/steadfast")]
    assert mounts_below(MOUNTS, folders) == [
        "/home/me/.cache/steadfast/docker/overlay2/f00/merged/dev/my disk",
        "/home/me/.cache/steadfast/docker/overlay2/f00/merged",
        "/run/steadfast-ab12cd/docker/netns/1",
    ]


def test_only_rules_with_our_bridge_or_network_are_deleted():
    deleted = [" ".join(rule) for rule in rules_naming(RULES, "sf-ab12cd", ["172.18.0.0/16"])]
    assert deleted == [
        "-D FORWARD -o sf-ab12cd -j DOCKER",
        "-D DOCKER -d 172.18.0.3/32 ! -i sf-ab12cd -o sf-ab12cd -p tcp -m tcp --dport 6443 -j ACCEPT",
        "-D POSTROUTING -s 172.18.0.0/16 ! -o eth9 -j MASQUERADE",
    ]


def test_the_networks_of_a_bridge():
    text = "7: sf-ab12cd    inet 172.18.0.1/16 brd 172.18.255.255 scope global sf-ab12cd"
    assert subnets_of(text) == ["172.18.0.0/16"]
    assert subnets_of("") == []


def process(proc, pid, *words):
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(w.encode() + b"\0" for w in words))


def test_a_pid_file_counts_only_for_a_process_of_ours(tmp_path):
    proc, file = tmp_path / "proc", tmp_path / "dockerd.pid"
    process(proc, 41, "/usr/sbin/dockerd", "--exec-root", "/run/steadfast-ab12cd/docker")
    process(proc, 42, "/usr/bin/editor", "notes.txt")
    file.write_text("41\n")
    assert process_of(file, "/run/steadfast-ab12cd", proc) == 41
    for stale in ("42\n", "43\n", "", "word\n"):
        file.write_text(stale)
        assert process_of(file, "/run/steadfast-ab12cd", proc) is None
    assert process_of(tmp_path / "none.pid", "/run/steadfast-ab12cd", proc) is None


def test_a_reader_of_our_files_is_no_process_of_the_engine(tmp_path):
    process(
        tmp_path, 50, "/usr/bin/containerd-shim-runc-v2", "-address", "/run/steadfast-ab12cd/containerd.sock"
    )
    process(tmp_path, 51, "/usr/bin/containerd-shim-runc-v2", "-address", "/run/containerd/containerd.sock")
    process(tmp_path, 52, "tail", "-f", "/run/steadfast-ab12cd/dockerd.log")
    process(tmp_path, 53)
    assert engine_processes("/run/steadfast-ab12cd", tmp_path) == [50]


@pytest.mark.parametrize("tree", ["memory/", "", "unified/"])
def test_processes_of_our_cgroup_are_found_in_every_hierarchy(tmp_path, tree):
    group = tmp_path / f"{tree}steadfast-ab12cd" / "f00"
    other = tmp_path / f"{tree}docker"
    for folder, text in ((group, "7\n8\n"), (other, "9\n")):
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(text)
    assert processes_in("/steadfast-ab12cd", tmp_path) == {7, 8}


def test_every_rule_that_is_set_is_found_again():
    wanted = rules("sf-ab12cd", "172.18.0.0/16")
    saved = "\n".join(f"-A {' '.join(words)}" for _table, words in wanted)
    assert rules_naming(saved, "sf-ab12cd") == [["-D", *words] for _table, words in wanted]


def test_commands_that_outlived_their_killed_run_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(commands.processes, "register", None)
    dead = "999999999 1"
    orphan, child = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        (tmp_path / str(orphan.pid)).write_text(f"{started(orphan.pid)} {dead}")
        # of a run that goes on: this one
        mine = f"{os.getpid()} {started(os.getpid())}"
        (tmp_path / str(child.pid)).write_text(f"{started(child.pid)} {mine}")
        # an id that went to another process since, a process that is gone, a note cut short
        (tmp_path / str(os.getppid())).write_text(f"1 {dead}")
        (tmp_path / "999999998").write_text(f"1 {dead}")
        (tmp_path / "999999997").write_text("1")
        assert end_orphans(tmp_path) == 1
        assert orphan.wait(10) == -9
        assert child.poll() is None
        assert [note.name for note in tmp_path.iterdir()] == [str(child.pid)]
        assert commands.processes.register == tmp_path
    finally:
        for process in (orphan, child):
            process.kill()
            process.wait()


def test_a_command_is_noted_while_it_runs(tmp_path, monkeypatch):
    folder = tmp_path / "running"
    folder.mkdir()
    monkeypatch.setattr(commands.processes, "register", folder)
    log = commands.Log(tmp_path / "log")
    log.run(["sh", "-c", f"until ls {folder} | grep .; do sleep 0.05; done"])
    noted = log.path.read_text().splitlines()[1]
    assert noted.isdigit()
    assert list(folder.iterdir()) == []
