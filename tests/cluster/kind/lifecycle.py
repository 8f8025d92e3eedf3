# SPDX-License-Identifier: Apache-2.0
"""What the commands do: bring the cluster up, take it down, say how it is."""

from __future__ import annotations

import contextlib
import fcntl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.kind import existing, paths, prerequisites, programs, stock_image, tools
from tests.cluster.kind.commands import ClusterError, end_orphans
from tests.cluster.kind.engine import Engine, choose
from tests.cluster.kind.node_image import NodeImage
from tests.cluster.kind.nodes import Nodes
from tests.cluster.kind.steps import Runner, Step, StepError
from tests.cluster.kind.versions import STOCK_NODE_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.kind.commands import Log

ENGINE_NEEDS = (
    prerequisites.DOCKER,
    prerequisites.DOCKERD,
    prerequisites.CONTAINERD,
    prerequisites.RUNC,
    prerequisites.IP,
    prerequisites.IPTABLES,
)
BUILD_NEEDS = (prerequisites.MMDEBSTRAP, prerequisites.UNSHARE)


@dataclass(frozen=True)
class Cluster:
    """The cluster of this user's cache folder, with everything that a start of it needs."""

    place: paths.Paths
    engine: Engine
    image: NodeImage
    runner: Runner

    @property
    def nodes(self) -> Nodes:
        return Nodes(self.place, self.engine)

    def up(self, more_tools: tuple[str, ...]) -> None:
        was_up = self.engine.answers()
        own_tag = self.image.tag
        if was_up or self.place.docker_data.exists():
            # a second start: ask the engine what it holds before anything is planned
            self.runner.run(self._base(build=False))
        tag = next((tag for tag in (own_tag, STOCK_NODE_IMAGE) if self._holds(tag)), None)
        if tag is not None:
            self.runner.run(self._tools(more_tools, after=()))
        elif stock_image.worth_a_try(self.engine) and self._pull(more_tools):
            tag = STOCK_NODE_IMAGE
        else:
            tag = own_tag
            if not programs.KUBE.artefact(self.place.artefacts).ready():
                self.runner.line(
                    "no registry answers: Kubernetes is compiled here, once, in 10 to 20 minutes"
                )
            build = [*self._base(build=True), *self.image.steps(self.engine)]
            self.runner.run([*build, *self._tools(more_tools, after=("go", "kind"))])
        if tag == own_tag:
            tools.kubectl(self.place)
        tools.docker(self.place, self.engine)
        if was_up and self.nodes.runs(tag):
            self.runner.line("cluster ... runs already")
            return
        self.runner.one("cluster", lambda log: self._create(tag, log))

    def _holds(self, tag: str) -> bool:
        return self.engine.answers() and self.engine.has_image(tag)

    def down(self) -> None:
        """Delete the nodes and stop what was started; a cluster that cannot be asked is removed by force."""

        def delete(log: Log) -> str:
            if not self.engine.answers() or not (self.place.bin / "kind").exists():
                return "not running"
            return self.nodes.delete(log)

        self.runner.run([Step("cluster", delete), Step("engine", self.engine.stop, ("cluster",))])

    def _create(self, tag: str, log: Log) -> str:
        self.nodes.delete(log)
        return self.nodes.create(tag, log)

    def _pull(self, more_tools: tuple[str, ...]) -> bool:
        def pull(log: Log) -> str:
            did = stock_image.pull(self.engine, log)
            stock_image.take_kubectl(self.engine, self.place.bin / "kubectl", log)
            return did

        try:
            node_image = Step("node image", pull, ("engine",))
            extra = self._tools(more_tools, after=("go", "kind"))
            self.runner.run([*self._base(build=False), *extra, node_image])
        except StepError as error:
            self.runner.line(f"kind's node image cannot be pulled, so one is assembled here ({error})")
            return False
        return True

    def _base(self, *, build: bool) -> list[Step]:
        """The steps up to a running engine and `kind`."""
        needs = (*(ENGINE_NEEDS if self.engine.own else ()), *(BUILD_NEEDS if build else ()))
        store = self.place.artefacts
        before_engine: tuple[str, ...] = ("debian packages",)
        steps = [
            Step("debian packages", lambda log: prerequisites.ensure(needs, log, self.runner.line)),
            Step("go", lambda log: programs.prepare(store, log)),
            Step("kind", lambda log: tools.kind(self.place, log), ("go",)),
        ]
        if self.engine.own:
            front = Step("runtime front", lambda log: programs.RUNTIME_FRONT.build(store, log), ("go",))
            steps.append(front)
            before_engine = ("debian packages", "runtime front")
        return [*steps, Step("engine", self.engine.start, before_engine)]

    def _tools(self, names: tuple[str, ...], after: tuple[str, ...]) -> list[Step]:
        return [
            Step(name, lambda log, n=name: tools.demand(self.place, n, log), after)  # type: ignore[misc]  # bound default
            for name in names
        ]


def up(say: Callable[[str], None] = print, *, more_tools: tuple[str, ...] = ()) -> Path:
    """Bring the cluster up and return its kubeconfig. Idempotent; a killed attempt is taken up again.

    ``more_tools`` names tools of `tools.ON_DEMAND` that are made side by side with the rest.

    Raises:
        ClusterError: a step failed or something is missing; the message says what and names the log.
    """
    if existing.asked_for():
        say(f"using the cluster of the current context, '{existing.check()}'")
        return Path(existing.kubeconfig())
    with _opened(say) as cluster:
        cluster.up(more_tools)
        return cluster.place.kubeconfig


def down(say: Callable[[str], None] = print) -> None:
    """Stop the cluster and everything that `up` started. What it built stays in the cache. Idempotent."""
    if existing.asked_for():
        say("the cluster of the current context is not ours: left as it is")
        return
    with _opened(say) as cluster:
        cluster.down()


def tool(name: str, say: Callable[[str], None] = print) -> Path:
    """Have a tool of `tools.ON_DEMAND` in the tools folder and return its path.

    Does not wait for an `up` that goes on at the same time: what both need is built once.
    """
    place = _place(say)
    Runner(place.logs, say).one(f"tool {name}", lambda log: tools.demand(place, name, log))
    return place.bin / name


def status() -> tuple[bool, str]:
    """Return whether the cluster runs, and a text about it."""
    place = paths.find()
    engine = choose(place)
    image = NodeImage(place.artefacts)
    nodes = Nodes(place, engine)
    answers = engine.answers()
    runs = answers and (nodes.runs(image.tag) or nodes.runs(STOCK_NODE_IMAGE))
    whose = "own" if engine.own else "yours"
    lines = [
        f"cluster:    {'runs' if runs else 'does not run'}",
        f"engine:     {whose}, {'up' if answers else 'down'}",
        f"node image: {image.tag}{' (not made)' if answers and not engine.has_image(image.tag) else ''}",
        f"kubeconfig: {place.kubeconfig}",
        f"tools:      {place.bin}",
        f"logs:       {place.logs}",
    ]
    return runs, "\n".join(lines)


def environment() -> dict[str, str]:
    """Return the variables under which `kubectl`, `helm`, `docker` and `kind` reach the cluster."""
    place = paths.find()
    env = Nodes(place, choose(place)).environment()
    if existing.asked_for():
        env["KUBECONFIG"] = existing.kubeconfig()
    return env


@contextlib.contextmanager
def _opened(say: Callable[[str], None]) -> Iterator[Cluster]:
    """Hold the cache's lock: two clones share it, and one start at a time is enough."""
    place = _place(say)
    with place.lock.open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another command holds {place.lock}, waiting for it ...")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield Cluster(place, choose(place), NodeImage(place.artefacts), Runner(place.logs, say))


def _place(say: Callable[[str], None]) -> paths.Paths:
    """Return the paths, the cache folder made and rid of what a killed run left running."""
    place = paths.find()
    try:
        place.cache.mkdir(parents=True, exist_ok=True)
        orphans = end_orphans(place.running)
    except OSError as error:
        raise ClusterError(f"the cache folder {place.cache} cannot be used: {error}") from error
    if orphans:
        say(f"ended {orphans} commands that an earlier, killed run had left running")
    return place
