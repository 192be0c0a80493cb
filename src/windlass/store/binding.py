"""Bind verbs to a store: a verb is written once, as a function over a transaction.

`cancel = writes(operating.cancel)` gives a store a method with the verb's parameters, result and docstring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from windlass.store.transaction import Tx

P = ParamSpec("P")
T = TypeVar("T")

# Whether a write may run again after its answer was lost: always, never, or if the request has an id.
Repeat = Literal["same", "never", "request_id"]


class Engine(ABC):
    """How a store runs verbs. Each is one transaction."""

    @abstractmethod
    def _read(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that changes nothing, and that sees one state of the store."""

    def _ask(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb of one statement, or of several that need not see the same state."""
        return self._read(verb, *args, **kwargs)

    @abstractmethod
    def _write(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that changes something."""

    def _rewrite(self, verb: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that may take effect twice without harm, again if its answer was lost."""
        return self._write(verb, *args, **kwargs)


class Bound(Generic[P, T]):
    """A verb as a method of a store."""

    def __init__(self, verb: Callable[Concatenate[Tx, P], T], run: Callable[..., T]) -> None:
        self.verb = verb
        self.__doc__ = verb.__doc__
        self._run = run

    @overload
    def __get__(self, store: None, owner: type[Engine]) -> Bound[P, T]: ...

    @overload
    def __get__(self, store: Engine, owner: type[Engine]) -> Callable[P, T]: ...

    def __get__(self, store: Engine | None, owner: type[Engine]) -> Bound[P, T] | Callable[P, T]:
        return self if store is None else partial(self._run, store, self.verb)


def reads(verb: Callable[Concatenate[Tx, P], T]) -> Bound[P, T]:
    """Bind a verb that changes nothing."""
    return Bound(verb, lambda store, *args, **kwargs: store._read(*args, **kwargs))  # noqa: SLF001 - the store's own


def asks(verb: Callable[Concatenate[Tx, P], T]) -> Bound[P, T]:
    """Bind a verb that changes nothing and is one statement, or several that need no snapshot."""
    return Bound(verb, lambda store, *args, **kwargs: store._ask(*args, **kwargs))  # noqa: SLF001 - the store's own


def writes(verb: Callable[Concatenate[Tx, P], T], *, repeat: Repeat) -> Bound[P, T]:
    """Bind a verb that changes something."""

    def run(store: Engine, verb: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        again = repeat == "same" or (repeat == "request_id" and kwargs.get("request_id"))
        return (store._rewrite if again else store._write)(verb, *args, **kwargs)  # noqa: SLF001 - the store's own

    return Bound(verb, run)
