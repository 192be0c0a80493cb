"""What must happen around a fork, so that parent and child do not drop each other's locks?

SQLite keeps an account of its file locks in memory, a fork copies the account, but the locks themselves
stay with the parent. A connection opened in the child then believes that it holds locks which it has not:
whoever closes last elsewhere takes the log away from under it. So before a fork every file is closed, and
both sides open what they need again.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something with files that must not live through a fork."""

    def before_fork(self) -> bool:
        """Close every file; False if one is in use and cannot be closed."""

    def after_fork_in_parent(self) -> None:
        """Go on; files are opened again when they are needed."""


# In a child: whether the fork copied an open connection, after which SQLite's locks cannot be trusted here.
tainted = False

_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_paused: list[Forkable] = []
_left_open = False


def watch(store: Forkable) -> None:
    """Close this store's files before each fork."""
    _open.add(store)


def _before() -> None:
    global _left_open  # noqa: PLW0603 - what the hook before a fork tells the hook behind it
    _left_open = False
    for store in list(_open):
        if store.before_fork():
            _paused.append(store)
        else:
            _left_open = True


def _in_parent() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()


def _in_child() -> None:
    global tainted  # noqa: PLW0603 - as above
    tainted = tainted or _left_open
    _paused.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
