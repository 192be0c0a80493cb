"""Calls that are right: mypy must have nothing to say."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from windlass import Context, JobHandle, Queue, Retry
from windlass.testing import override

queue = Queue("sqlite:///:memory:")


@queue.job
def send(to: str, subject: str, body: str = "") -> int:
    return len(to + subject + body)


@queue.job(timeout=30, max_attempts=3, retry=Retry(base=1), rules={ValueError: "fatal"}, max_age="1h")
def build(ctx: Context, account: int) -> str:
    return f"{ctx.id} {account}"


@queue.job(name="fetch", timeout=timedelta(minutes=1), when_unsure="stop")
async def fetch(url: str) -> bytes:
    return url.encode()


@dataclass
class Address:
    city: str


@queue.job(version=2, encrypt=["note"])
async def ship(ctx: Context, to: Address, *, note: str = "") -> int:
    return ctx.attempt


@ship.upgrade(from_version=1)
def rename(payload: dict[str, Any]) -> dict[str, Any]:
    return {"to": payload["address"]}


@queue.on_worker_start
def prepare() -> None: ...


assert_type(send("a", "b"), int)
assert_type(send("a", subject="b", body="c"), int)
assert_type(send.enqueue("a", "b"), JobHandle)
build.enqueue(7)
build.enqueue(account=7)
build.options(priority=9, delay="5m", key="k", on_conflict="existing").enqueue(account=7)
queue.enqueue_many([send.draft("a", "b"), build.options(tenant="t").draft(1)])
queue.enqueue("send", {"to": "a"}, priority=1, delay=timedelta(1))
ship.options(payload_ref="s3://bucket/a", traceparent=None).enqueue(Address("Paris"), note="x")
queue.enqueue_many(ship.draft(to=Address(city)) for city in ("Paris", "Rome"))
prepare()
rename({})


def inside(ctx: Context) -> None:
    assert_type(build(ctx, 7), str)
    assert_type(ctx.enqueue(send.draft("a", "b")), list[str])
    assert_type(ctx.extend(timedelta(minutes=1)), bool)
    ctx.progress(1, of=3)
    with ctx.once("mail") as mail, ctx.transaction() as connection:
        assert_type(mail.in_doubt, bool)
        connection.execute("select 1")


first = send.options(connection=object()).enqueue("a", "b")
send.options(depends_on=[first, "key"], on_dead="cancel").enqueue("a", "b")
with queue.batch("news") as batch:
    batch.add(send.draft("a", "b"))
    batch.then(build.draft(1))


async def asynchronous() -> None:
    assert_type(await fetch("a"), bytes)
    assert_type(await send.enqueue_async("a", subject="b"), JobHandle)
    assert_type(await ship.enqueue_async(to=Address("Paris")), JobHandle)
    assert_type(await queue.enqueue_async("send", {"to": "a"}, tenant="t"), JobHandle)
    await (await fetch.options(key="k").enqueue_async("a")).result_async(timeout=5)


with queue.worker(concurrency=4, lease="2m") as worker:
    worker.drain()

with override(queue) as kit:
    kit.run(send.draft("a", "b"))
    kit.run_twice(ship.draft(Address("Paris")), effects=lambda: 1)
    kit.assert_enqueued(ship, payload_contains={"to": {"city": "Paris"}}, count=1)
    kit.drain(within=timedelta(hours=1))
