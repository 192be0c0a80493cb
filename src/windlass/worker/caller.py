"""Where does a run run: on a thread, on the loop, or in a child that a thread waits for?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.clock import Clock
from windlass.outcome import Result, Unstarted
from windlass.worker.coroutines import Coroutines
from windlass.worker.pool import Pool
from windlass.worker.run import Run
from windlass.worker.runner import Runner
from windlass.worker.threads import Threads


class Caller:
    """Starts runs by their handler's kind, and as one ends, those that waited for its slot."""

    def __init__(
        self,
        runner: Runner,
        *,
        freed: Callable[[Pool], None],
        hangs: Callable[[str], bool] = lambda _: False,
        clock: Clock,
    ) -> None:
        """`hangs`: jobs of that type keep workers from answering, and must run in a child."""
        self._runner = runner
        self._hangs = hangs
        self._freed = freed
        self._clock = clock
        self.threads = Threads(runner, done=self._done)
        self.coroutines = Coroutines(runner, done=self._done, clock=clock)

    def start(self, runs: Sequence[Run]) -> None:
        """Start runs that have slots."""
        on_loop = []
        for run in runs:
            run.isolated = self._hangs(run.handler.name)
            if run.handler.kind == "loop" and not run.in_child:
                on_loop.append(run)
            else:
                self.threads.start(run)
        if on_loop:
            self.coroutines.start(on_loop)

    @property
    def waiting(self) -> bool:
        """Whether a run was handed to the loop and has not started."""
        return self.coroutines.waiting

    def take_back(self, before: float) -> None:
        """Give back what was handed to the loop before that time and has not started, and free its slots."""
        for run in self.coroutines.take_back(before):
            self._done(run, Unstarted())

    def carried(self) -> list[Run]:
        """Those whose work goes on at this moment, settled or not."""
        return [*self.threads.carried(), *self.coroutines.carried()]

    def _done(self, run: Run, result: Result) -> None:
        """A run's work has really ended."""
        # An errand knows its run: the two would keep each other, and with them a dead child's buffers.
        run.carrier = None
        first = self._runner.finish(run, result)
        was_held = not first and run.started is not None
        if was_held:
            self._runner.end(run)
        following = run.pool.free(run, self._clock.monotonic(), was_held=was_held)
        if following:
            self.start(following)
        self._freed(run.pool)
