# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a build side by side, in the order that their needs allow."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.kind.commands import ClusterError, CommandError, Log, start_again, stop_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


QUIET_SECONDS = 0.5


@dataclass(frozen=True)
class Step:
    """One step: ``action`` gets the step's log and returns a word on what it did (``cached``, ``built``)."""

    name: str
    action: Callable[[Log], str]
    needs: tuple[str, ...] = ()


class StepError(ClusterError):
    """A step failed; the message names the step, the reason and its log file."""


def check(steps: Sequence[Step]) -> None:
    """Reject a plan that cannot run.

    Raises:
        ValueError: two steps of one name, a need that no step fulfils, or steps that wait for each other.
    """
    names = [step.name for step in steps]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"steps named twice: {', '.join(twice)}")
    unknown = sorted({need for step in steps for need in step.needs} - set(names))
    if unknown:
        raise ValueError(f"needs that no step fulfils: {', '.join(unknown)}")
    left, done = list(steps), set[str]()
    while left:
        ready = [step for step in left if done.issuperset(step.needs)]
        if not ready:
            raise ValueError(f"steps that wait for each other: {', '.join(step.name for step in left)}")
        done.update(step.name for step in ready)
        left = [step for step in left if step not in ready]


@dataclass
class Runner:
    """Runs steps in threads; prints a line when a step ends, and when it starts unless it is over at once.

    ``clock`` gives seconds; the first reading is the zero of the printed times.
    When no step has ended for ``quiet`` seconds, a line says which are at work.
    """

    logs: Path
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.monotonic
    workers: int = 6
    quiet: float = 60.0
    took: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._zero = self.clock()
        self._one_line = threading.Lock()

    def line(self, text: str) -> None:
        """Print ``text`` behind the elapsed time."""
        with self._one_line:
            self.say(f"[{self.clock() - self._zero:6.1f}s] {text}")

    def one(self, name: str, action: Callable[[Log], str]) -> None:
        """Run a single step; see `run`."""
        self.run([Step(name, action)])

    def run(self, steps: Sequence[Step]) -> None:
        """Run all steps, each as soon as what it needs is done; earlier ones first.

        Raises:
            StepError: a step failed. No further step starts, commands still running are ended.
            ValueError: the plan cannot run, see `check`.
        """
        check(steps)
        start_again()
        waiting, done = list(steps), set[str]()
        running: dict[Future[str], Step] = {}
        failure: tuple[Step, BaseException] | None = None
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                while running or (waiting and failure is None):
                    for step in [s for s in waiting if failure is None and done.issuperset(s.needs)]:
                        waiting.remove(step)
                        running[pool.submit(self._timed, step)] = step
                    finished, _ = wait(running, self.quiet, return_when=FIRST_COMPLETED)
                    if not finished:
                        self.line(f"  still at work: {', '.join(step.name for step in running.values())}")
                    for future in finished:
                        step = running.pop(future)
                        error = future.exception()
                        if error is None:
                            done.add(step.name)
                        elif failure is None:
                            failure = (step, error)
                            stop_all()
            except KeyboardInterrupt:
                stop_all()
                raise
        if failure is not None:
            raise self._explain(*failure)

    def log(self, name: str) -> Log:
        """Return the log of the step ``name``."""
        return Log(self.logs / f"{name.replace(' ', '-')}.log")

    def _timed(self, step: Step) -> str:
        log = self.log(step.name)
        log.path.parent.mkdir(parents=True, exist_ok=True)
        log.path.write_text("")
        begin = self.clock()
        # what is done at once needs no line for its start
        starting = threading.Timer(QUIET_SECONDS, self.line, [f"{step.name} ..."])
        starting.start()
        try:
            did = step.action(log)
        finally:
            starting.cancel()
        self.took[step.name] = self.clock() - begin
        self.line(f"{step.name} ... {did} in {self.took[step.name]:.1f}s")
        return did

    def _explain(self, step: Step, error: BaseException) -> BaseException:
        self.line(f"{step.name} ... failed")
        if not isinstance(error, CommandError | ClusterError | OSError):
            return error
        text = f"step '{step.name}' failed: {error}\n  log: {self.log(step.name).path}"
        failure = StepError(text)
        failure.__cause__ = error
        return failure
