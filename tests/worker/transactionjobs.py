"""Handlers with a transaction of their own, which a child can import."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from windlass import Context, Refused
from windlass.job import NewJob


def send(ctx: Context, name: str) -> None:
    with ctx.transaction() as connection:
        connection.execute(f"insert into sent values ('{name}')")
        ctx.set_result({"name": name, "pid": os.getpid()})
        ctx.enqueue(NewJob(id=f"{ctx.id[:-4]}beef", type="next", payload=b"{}"))


async def send_async(ctx: Context, name: str) -> None:
    async with ctx.transaction() as connection:
        answer = connection.execute(f"insert into sent values ('{name}')")
        if inspect.isawaitable(answer):
            await answer


def fail_within(ctx: Context) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('eve')")
        raise ValueError("on second thoughts")


def fail_after(ctx: Context) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('ann')")
    raise ValueError("too late")


def die_within(ctx: Context) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('eve')")
        os.kill(os.getpid(), signal.SIGKILL)


def die_after(ctx: Context) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('ann')")
    os.kill(os.getpid(), signal.SIGKILL)


def die_untold(ctx: Context) -> None:
    """Dies when the transaction is committed and before the worker is told."""
    asking: Any = ctx._worker  # noqa: SLF001 - nowhere else can it die just then
    ask = asking._ask  # noqa: SLF001 - as above

    def ask_or_die(verb: str, *given: Any, **more: Any) -> Any:
        if verb == "committed":
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(verb, *given, **more)

    asking._ask = ask_or_die  # noqa: SLF001 - as above
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('ann')")


def linger(ctx: Context) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('eve')")
        time.sleep(100)  # noqa: TID251 - a handler may do as it likes


def give_away(ctx: Context, table: str) -> None:
    """As if the job had been given to another worker meanwhile."""
    with ctx.transaction() as connection:
        connection.execute("insert into sent values ('eve')")
        another = "0195f000-0000-7000-8000-000000000000"
        connection.execute(f"update {table} set token = '{another}' where token is not null")


def come_too_late(ctx: Context) -> str:
    with ctx.transaction():
        ctx.set_result("before")
    refused = 0
    for ask in (
        lambda: ctx.set_result("after"),
        lambda: ctx.enqueue(NewJob(id=ctx.id, type="a", payload=b"{}")),
    ):
        try:
            ask()
        except Refused:
            refused += 1
    Path(str(ctx.payload_ref)).write_text(f"refused {refused}")
    return "returned"


def tell_all(ctx: Context) -> None:
    """What anybody on the machine may read of this process, and what it was given."""
    with ctx.transaction():
        seen = [repr(Path(f"/proc/self/{each}").read_bytes()) for each in ("cmdline", "environ")]
        ctx.set_result([*seen, *sys.argv])
