"""How does a Flask application enqueue jobs, and how do their handlers see the application?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flask import Flask

from windlass.queue import Queue

_NAME = "windlass"
_SETTING = "WINDLASS_DATABASE_URL"


class FlaskQueue(Queue):
    """A Queue that is an extension: it finds its store in the application's configuration.

    Handlers run in the application's context, so that `current_app` and extensions work in them.
    """

    def __init__(self, app: Flask | None = None) -> None:
        super().__init__()
        self._app: Flask | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Belong to this application; its configuration says where the store is (WINDLASS_DATABASE_URL)."""
        self._app = app
        app.extensions[_NAME] = self
        if app.config.get(_SETTING):
            self.stand_at(app.config[_SETTING])

    def dress(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A handler within the application's context."""
        if self.is_async(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with self._application().app_context():
                    return await function(*args, **kwargs)

            return call_async

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._application().app_context():
                return function(*args, **kwargs)

        return call

    def _application(self) -> Flask:
        if self._app is None:
            raise RuntimeError("this queue belongs to no application yet: call init_app(app) first")
        return self._app
