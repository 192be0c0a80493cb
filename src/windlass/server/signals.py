"""How are the signals that do not lie told over HTTP?"""

from __future__ import annotations

from windlass.ops.document import plain
from windlass.ops.signals import Signals
from windlass.server.call import Call
from windlass.server.reply import Reply
from windlass.server.routes import Route, look


async def show_signals(call: Call) -> Reply:
    """What waits and is not taken, what starves, what was done twice or not at all, what has stopped."""
    return Reply(200, plain(await call.run(call.parts.ops().signals)))


ROUTES: tuple[Route, ...] = (look("signals", show_signals, "What a depth does not tell", Signals),)
