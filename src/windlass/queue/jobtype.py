"""What does a decorated function offer besides being called?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from windlass.context import Context
from windlass.payload.upgrades import Step
from windlass.queue.options import Choice, JobOptions, choose, without_connection

if TYPE_CHECKING:
    from windlass.job import NewJob
    from windlass.queue.handle import JobHandle
    from windlass.queue.producer import Producer
    from windlass.registry import Handler

P = ParamSpec("P")
R = TypeVar("R")


class Prepared(Generic[P]):
    """A type together with options for its next jobs."""

    def __init__(self, producer: Producer, handler: Handler, choice: Choice) -> None:
        self._producer = producer
        self._choice = choice
        self.handler = handler

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Store a job with these arguments; it is accepted when this returns.

        With `connection=` it is accepted when the caller commits.
        """
        return self._producer.enqueue(self._draft(args, kwargs, fresh=True), self._choice.connection)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """For async callers; one thread hop. `connection=` may be an async one."""
        return await self._producer.enqueue_async(
            lambda: self._draft(args, kwargs, fresh=True), self._choice.connection
        )

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A checked job that is not stored yet, for `queue.enqueue_many`."""
        without_connection(self._choice)
        return self._draft(args, kwargs, fresh=False)

    def _draft(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, fresh: bool) -> NewJob:
        arguments = self.handler.signature.bind(*args, **kwargs)
        return self._producer.draft(self.handler, arguments, self._choice, fresh=fresh)


class Enqueueable(Prepared[P]):
    """What can be enqueued with the arguments P: a handler's function, which stays callable."""

    __name__: str

    def __init__(self, producer: Producer, handler: Handler) -> None:
        super().__init__(producer, handler, choose({}))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handler.name!r})"

    def options(self, **options: Unpack[JobOptions]) -> Prepared[P]:
        """The same with options for the jobs to be enqueued: priority, delay, key and the like."""
        return Prepared(self._producer, self.handler, choose(options))

    def upgrade(self, *, from_version: int) -> Callable[[Step], Step]:
        """Say how a payload of an older version becomes one of the next; a dict comes in, a dict goes out."""

        def add(step: Step) -> Step:
            self.handler.upgrades.add(from_version, step)
            return step

        return add


class JobType(Enqueueable[P], Generic[P, R]):
    """A handler's function, still callable, that can be enqueued with the same arguments."""

    def __init__(self, producer: Producer, handler: Handler, function: Callable[P, R]) -> None:
        super().__init__(producer, handler)
        functools.update_wrapper(self, function, updated=())
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no job is made."""
        return self._function(*args, **kwargs)


class ContextJobType(Enqueueable[P], Generic[P, R]):
    """The same for a function that takes a Context: a call gives one, a job gets it from the worker."""

    def __init__(
        self, producer: Producer, handler: Handler, function: Callable[Concatenate[Context, P], R]
    ) -> None:
        super().__init__(producer, handler)
        functools.update_wrapper(self, function, updated=())
        self._function = function

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; no job is made."""
        return self._function(ctx, *args, **kwargs)
