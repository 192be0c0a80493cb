"""May an exception be thrown into a thread where it stands now?"""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType
from typing import NamedTuple

# Code that takes locks in steps: an exception between two of them would leave a lock taken for ever, and
# with it everybody who logs, imports or waits. What such code calls in turn, it calls prepared for a failure.
_LOCKING = frozenset({"logging", "threading", "queue", "concurrent", "asyncio"})
# Code that must be left in peace whatever it calls.
_SACRED = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external", "windlass"})
_WAIT = threading.Condition.wait.__code__
# The terminal's log: a handler that logs in a loop is hardly ever seen elsewhere.
_LOG = "windlass.cli.logs"


class Standing(NamedTuple):
    """Where a thread stands: its innermost frame, and how far that one has come."""

    frame: FrameType | None
    step: int


def standing(thread: int | None) -> Standing:
    """Where the thread stands at this moment."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - the only way to see another thread's stack
    return Standing(frame, frame.f_lasti if frame is not None else -1)


def may_strike(top: FrameType | None, caller: CodeType) -> bool:
    """Whether the thread is in a handler that `caller` has called, and not in code that takes locks."""
    inner: list[FrameType] = []
    frame = top
    while frame is not None and frame.f_code is not caller:
        inner.append(frame)
        frame = frame.f_back
    if frame is None or not inner:
        return False
    # The handler may be anybody's; but before and after it, steps of ours stand in its place.
    handler = inner.pop()
    if _module(handler).startswith("windlass.worker"):
        return False
    if any(_root(each) in _SACRED and _module(each) != _LOG for each in inner):
        return False
    return not inner or _root(inner[0]) not in _LOCKING or _is_prepared(inner[0])


def _is_prepared(frame: FrameType) -> bool:
    """Whether code that takes locks is where it expects a failure: waiting, or writing a line of the log."""
    return frame.f_code is _WAIT or (_root(frame) == "logging" and frame.f_code.co_name == "emit")


def _root(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
