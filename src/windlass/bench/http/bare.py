"""What could a server do at most? One Starlette route, the same shared commits, no checks of any kind.

The loop, the parser and uvicorn's settings are those of `windlass serve`. How often Python looks for garbage
is left as it is, as by whoever writes such a route; `windlass serve` lets it look less often.

Run as a program: `python -m windlass.bench.http.bare DATABASE_URL` prints its port.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from windlass.clock import uuid7
from windlass.job import NewJob
from windlass.queue import Queue
from windlass.server.intake import Intake


def make(url: str) -> Starlette:
    """The application."""
    intake = Intake(Queue(url))

    async def post(request: Request) -> JSONResponse:
        sent = await request.json()
        new = NewJob(id=uuid7(), type=sent["type"], payload=json.dumps(sent["payload"]).encode())
        [done] = (await intake.accept(lambda: [new])).done
        return JSONResponse({"id": done.id}, status_code=201)

    return Starlette(routes=[Route("/api/v1/jobs", post, methods=["POST"])])


def main() -> None:
    """Serve on a free port until killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - whoever started it reads the port
    config = uvicorn.Config(
        make(sys.argv[1]),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
