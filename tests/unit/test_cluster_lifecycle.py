# SPDX-License-Identifier: Apache-2.0
"""Which way a start takes: what is there is used, what can be pulled is pulled, the rest is assembled."""

from pathlib import Path

import pytest

from tests.cluster.kind import lifecycle
from tests.cluster.kind.lifecycle import Cluster
from tests.cluster.kind.paths import Paths
from tests.cluster.kind.steps import Runner, Step, StepError
from tests.cluster.kind.versions import STOCK_NODE_IMAGE

OWN = "steadfast/node:0123456789ab"


class Engine:
    """A Docker that is up or not, and holds images."""

    own = True
    docker = "docker"

    def __init__(self, *, up, images=()):
        self.up = up
        self.images = set(images)

    def answers(self):
        return self.up

    def has_image(self, tag):
        return tag in self.images

    def start(self, _log):
        self.up = True
        return "started"

    def environment(self):
        return {}


class Image:
    tag = OWN

    def steps(self, engine):
        return [Step("node image", lambda _log: engine.images.add(OWN) or "built", ("engine",))]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a cluster and return what the runner was told to do, in order, and the node image used."""

    def begin(engine, *, registry=False, refused=False, warm=False, running="", more_tools=()):
        place = Paths(tmp_path, tmp_path / "run")
        if warm:
            place.docker_data.mkdir()
        said, used = [], []
        runner = Runner(tmp_path / "logs", lambda line: said.append(line.split("] ")[1]))
        monkeypatch.setattr(lifecycle.stock_image, "worth_a_try", lambda _engine: registry)

        def pull(engine, _log):
            if refused:
                raise lifecycle.ClusterError("toomanyrequests")
            engine.images.add(STOCK_NODE_IMAGE)
            return "pulled"

        monkeypatch.setattr(lifecycle.stock_image, "pull", pull)
        monkeypatch.setattr(lifecycle.stock_image, "take_kubectl", lambda *_args: None)
        for name in ("kubectl", "docker"):
            monkeypatch.setattr(lifecycle.tools, name, lambda *_args: None)
        monkeypatch.setattr(lifecycle.tools, "kind", lambda *_args: "cached")
        monkeypatch.setattr(lifecycle.tools, "demand", lambda _place, name, _log: f"{name} made")
        monkeypatch.setattr(lifecycle.prerequisites, "ensure", lambda *_args: "all there")
        monkeypatch.setattr(lifecycle.programs, "prepare", lambda *_args: "not needed")
        monkeypatch.setattr(type(lifecycle.programs.RUNTIME_FRONT), "build", lambda *_args: "cached")
        monkeypatch.setattr(Cluster, "_create", lambda _self, tag, _log: used.append(tag) or "created")
        monkeypatch.setattr(lifecycle.Nodes, "runs", lambda _self, tag: tag == running)
        Cluster(place, engine, Image(), runner).up(tuple(more_tools))
        steps = [line.split(" ... ")[0] for line in said]
        return steps, (used[0] if used else None)

    return begin


def test_a_first_start_without_a_registry_assembles_the_image(start):
    steps, used = start(Engine(up=False), more_tools=["helm"])
    assert used == OWN
    assert steps.count("engine") == 1, "one plan, so that everything overlaps"
    assert {"node image", "helm"} <= set(steps)


def test_a_second_start_builds_nothing(start):
    steps, used = start(Engine(up=False, images=[OWN]), warm=True, more_tools=["helm"])
    assert used == OWN
    assert "node image" not in steps
    assert "helm" in steps


def test_what_runs_is_left_as_it_is(start):
    steps, used = start(Engine(up=True, images=[OWN]), running=OWN)
    assert used is None
    assert "node image" not in steps
    assert steps[-1] == "cluster"


def test_data_that_were_removed_are_made_again(start):
    steps, used = start(Engine(up=False), warm=True)
    assert used == OWN
    assert "node image" in steps


def test_where_a_registry_answers_the_stock_image_is_pulled(start):
    steps, used = start(Engine(up=True), registry=True)
    assert used == STOCK_NODE_IMAGE
    assert "node image" in steps


def test_a_pulled_image_needs_no_registry_again(start):
    steps, used = start(Engine(up=False, images=[STOCK_NODE_IMAGE]), warm=True)
    assert used == STOCK_NODE_IMAGE
    assert "node image" not in steps


def test_a_registry_that_refuses_means_an_assembled_image(start):
    _steps, used = start(Engine(up=True), registry=True, refused=True)
    assert used == OWN


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.delenv("CLUSTER", raising=False)
    with pytest.raises(lifecycle.ClusterError, match=str(Path(file) / "steadfast")):
        lifecycle.up(print)


def test_an_engine_that_does_not_start_fails_the_command(start):
    engine = Engine(up=False)

    def refuse(_log):
        raise lifecycle.ClusterError("dockerd ended at once, see dockerd.log")

    engine.start = refuse
    with pytest.raises(StepError, match="step 'engine' failed: dockerd ended at once"):
        start(engine)
