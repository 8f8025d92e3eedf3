# SPDX-License-Identifier: Apache-2.0
"""The cache of built things: keys follow content, nothing half-made is ever seen."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.kind.artefacts import Artefact, key_of, remove


def folder(parent, name, **files):
    made = parent / name
    made.mkdir()
    for file, content in files.items():
        (made / file).write_text(content)
    return made


def test_the_same_content_in_another_clone_has_the_same_key(tmp_path):
    first = folder(tmp_path, "one", a="x", b="y")
    second = folder(tmp_path, "two", a="x", b="y")
    assert key_of([first, "v1"]) == key_of([second, "v1"])


def test_a_changed_file_name_mode_or_content_changes_the_key(tmp_path):
    made = folder(tmp_path, "one", a="x")
    keys = [key_of([made])]
    (made / "a").write_text("z")
    keys.append(key_of([made]))
    (made / "a").rename(made / "b")
    keys.append(key_of([made]))
    (made / "b").chmod(0o755)
    keys.append(key_of([made]))
    assert len(set(keys)) == 4


def test_compiled_python_does_not_count(tmp_path):
    made = folder(tmp_path, "one", a="x")
    before = key_of([made])
    folder(made, "__pycache__", c="compiled")
    assert key_of([made]) == before


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_texts_have_different_keys(one, two):
    assert (key_of(one) == key_of(two)) == (one == two)


def test_it_is_built_once(tmp_path):
    built = []

    def build(target):
        built.append(1)
        (target / "result").write_text("r")

    artefact = Artefact(tmp_path, "thing", "k1")
    assert artefact.ensure(build) == "built"
    assert artefact.ensure(build) == "cached"
    assert (artefact.path / "result").read_text() == "r"
    assert len(built) == 1


def test_two_that_want_it_at_once_build_it_once(tmp_path):
    built, did = [], []

    def build(target):
        built.append(1)
        (target / "result").touch()

    def want():
        did.append(Artefact(tmp_path, "thing", "k1").ensure(build))

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert built == [1]
    assert sorted(did) == ["built", "cached", "cached", "cached"]


def test_a_broken_build_leaves_nothing_that_looks_ready(tmp_path):
    def fail(target):
        (target / "half").write_text("h")
        raise OSError("disk full")

    artefact = Artefact(tmp_path, "thing", "k1")
    with pytest.raises(OSError, match="disk full"):
        artefact.ensure(fail)
    assert not artefact.ready()
    assert artefact.ensure(lambda target: (target / "whole").touch()) == "built"
    assert [p.name for p in artefact.path.iterdir()] == ["whole"]


def test_the_two_newest_of_a_name_are_kept(tmp_path):
    for age, key in ((30, "aaaaaaaaaaaa"), (20, "bbbbbbbbbbbb"), (10, "cccccccccccc")):
        artefact = Artefact(tmp_path, "etcd", key)
        artefact.ensure(lambda target: target.joinpath("x").touch())
        stamp = 1_700_000_000 - age
        os.utime(artefact.path, (stamp, stamp))
    other = Artefact(tmp_path, "etcd-image", "dddddddddddd")
    other.ensure(lambda target: target.joinpath("x").touch())
    Artefact(tmp_path, "etcd", "eeeeeeeeeeee").ensure(lambda target: target.joinpath("x").touch())
    names = sorted(p.name for p in tmp_path.iterdir() if p.is_dir())
    assert names == ["etcd-cccccccccccc", "etcd-eeeeeeeeeeee", "etcd-image-dddddddddddd"]


def test_what_is_not_there_is_removed_without_a_word(tmp_path):
    remove(tmp_path / "nothing")


def test_a_mount_point_is_never_removed_through():
    with pytest.raises(OSError, match="still mounted"):
        remove(Path("/proc"))
