"""How does a Django project enqueue jobs? `INSTALLED_APPS = [..., "windlass.contrib.django"]`.

`from windlass.contrib.django import queue` in an app's `jobs.py`; `manage.py windlass_worker` runs them;
the admin shows them. `WINDLASS = {"DATABASE_URL": "..."}` in the settings says where the store is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import close_old_connections

from windlass.errors import must_be
from windlass.queue import Queue

__all__ = ["DjangoQueue", "queue"]
_KNOWN = ("DATABASE_URL",)


class DjangoQueue(Queue):
    """A Queue whose handlers begin and end with Django's connections as a request does."""

    def dress(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A handler that never meets a connection which its server has closed meanwhile."""
        if self.is_async(function):
            # Its connections belong to the threads that Django runs them on.
            return function

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            close_old_connections()
            try:
                return function(*args, **kwargs)
            finally:
                close_old_connections()

        return call


def _from_settings() -> DjangoQueue:
    given: dict[str, Any] = getattr(settings, "WINDLASS", {})
    for name in given:
        if name not in _KNOWN:
            raise must_be("each name in the setting WINDLASS", name, "one of " + ", ".join(_KNOWN))
    return DjangoQueue(given.get("DATABASE_URL"))


queue = _from_settings()
