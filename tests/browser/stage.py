"""What is there to be seen? A shop's jobs at work, and four things that go wrong with them.

Nothing is painted: real handlers fail, real workers record it. Tests look at it, and so do the pictures of
the documentation.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from tests.waiting import PATIENCE, until
from windlass import Context, FatalError, Queue, Retry
from windlass.clock import to_micros
from windlass.observe import names
from windlass.ops import Ops, ScheduleWish
from windlass.schedule import TimingOptions

SCRIPT = "<script>document.title = 'stolen'</script><img src=x onerror=\"document.title='stolen'\">"


class Shop:
    """An application whose outside world a test holds in its hand."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queue = Queue(url, patience=PATIENCE)
        self.crm_is_down = False
        self.address_is_needed = True
        # Reports do not end before this is set.
        self.go_on = threading.Event()
        self._register()

    @property
    def ops(self) -> Ops:
        """The operator."""
        return Ops(self.queue.store, wakeup=self.queue.wakeup, by="ann")

    def _register(self) -> None:
        queue = self.queue

        @queue.job(name="email.send", priority=8)
        def send(to: str, subject: str = "Your order", body: str = "") -> dict[str, Any]:
            return {"accepted": [to], "subject": subject}

        @queue.job(name="crm.sync", max_attempts=8, retry=Retry(base=300, jitter=0), timeout="20s")
        def sync(contact: int) -> None:
            if self.crm_is_down:
                raise ConnectionError("crm.example: connection refused")

        @queue.job(name="invoice.render", max_attempts=1)
        def render(order: dict[str, Any], note: str = "") -> str:
            if self.address_is_needed and "address" not in order:
                raise ValueError(f"order {order.get('id')} has no address")
            return f"invoice-{order.get('id')}.pdf"

        self._register_slow_ones()

    def _register_slow_ones(self) -> None:
        queue = self.queue

        @queue.job(name="report.build", timeout="30m", priority=3)
        def build(ctx: Context, account: int) -> int:
            while not self.go_on.is_set() and not ctx.wait_cancelled(0.02):
                pass
            return account

        @queue.job(name="image.resize", max_attempts=2)
        def resize(path: str) -> None:
            if "broken" in path:
                raise FatalError(f"{path} is no picture")

        @queue.job(name="cart.remind", priority=2)
        def remind(cart: int) -> None:
            """Nothing is sent."""

    def enqueue(self, name: str, payload: dict[str, Any], **options: Any) -> str:
        """Put a job in."""
        return self.queue.enqueue(name, payload, **options).id

    def let_time_pass(self, span: timedelta) -> None:
        """Whatever waits has waited so much longer: there is no other way to be old at once."""
        path = self.url.removeprefix("sqlite:///")
        micros = int(span.total_seconds() * 1_000_000)
        earlier = ", ".join(f"{name} = {name} - {micros}" for name in ("run_at", "created_at", "enqueued_at"))
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE)) as file, file:
            file.execute(f"update windlass_jobs set {earlier} where state = 'pending'")
            file.execute(f"update windlass_pauses set paused_at = paused_at - {micros}")

    def spread_deaths(self, *, but: str) -> None:
        """As if the dead letters, all but one, had come over the last hours, and not at once."""
        path = self.url.removeprefix("sqlite:///")
        moments = ("created_at", "enqueued_at", "run_at", "started_at", "updated_at", "finished_at")
        earlier = ", ".join(f"{name} = {name} - :micros" for name in moments)
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE)) as file, file:
            dead = file.execute(
                "select id from windlass_jobs where state = 'dead' and id <> ? order by seq", (but,)
            )
            for number, (job_id,) in enumerate(dead.fetchall()):
                file.execute(
                    f"update windlass_jobs set {earlier} where id = :id",
                    {"id": job_id, "micros": (20 + 37 * number) * 60_000_000},
                )

    def an_hour_ago(self, minutes: int = 62, *, but: str = "") -> None:
        """As if the shop, but for one type, had been at work for so long, in a store that keeps a history."""
        chance = random.Random(7)
        path = self.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE)) as file, file:
            if not file.execute("select 1 from sqlite_master where name = 'windlass_history'").fetchone():
                return
            now = self.ops.now()
            for back in range(1, minutes):
                at = to_micros((now - timedelta(minutes=back)).replace(second=0, microsecond=0))
                for job_type, usual in {"email.send": 90, "crm.sync": 40, "image.resize": 12}.items():
                    if job_type == but:
                        continue
                    made = int(usual * chance.uniform(0.7, 1.3))
                    waiting = max(0, int(chance.gauss(usual / 9, 4)))
                    row = {
                        "enqueued": made,
                        "started": made,
                        "completed": made - made // 20,
                        "depth": waiting,
                    }
                    row |= {
                        "failed": made // 20,
                        "dead": int(chance.random() < 0.08),
                        "oldest": waiting * 300_000,
                    }
                    for measure, micros in {names.RUN: 40_000, names.WAIT: 15_000}.items():
                        row[names.bucket(measure, 0)] = made
                        row[names.total(measure)] = int(made * micros * chance.uniform(0.8, 1.4))
                    file.executemany(
                        "insert or replace into windlass_history (step, at, type, name, value) "
                        "values ('minute', ?, ?, ?, ?)",
                        [(at, job_type, name, value) for name, value in row.items()],
                    )

    def until(self, met: Callable[[], bool]) -> None:
        """Wait for what workers do."""
        until(met, "the workers come that far")

    def counts(self) -> dict[str, int]:
        """How many jobs stand where."""
        return self.ops.status().counts

    def close(self) -> None:
        """Let everything end."""
        self.go_on.set()
        self.queue.close()


@contextlib.contextmanager
def opened(url: str) -> Iterator[Shop]:
    """A shop for as long as a block lasts."""
    with contextlib.closing(Shop(url)) as shop:
        yield shop


def work_off(shop: Shop) -> None:
    """Let a worker run whatever can end."""
    with shop.queue.worker():
        shop.until(lambda: not shop.counts()["due"] and not shop.counts()["processing"])


# --- four things that go wrong ------------------------------------------------------------------


def dependency_down(shop: Shop) -> None:
    """The CRM refuses connections: each contact that is synchronised fails and waits for another try."""
    shop.crm_is_down = True
    for contact in range(14):
        shop.enqueue("crm.sync", {"contact": contact})
    with shop.queue.worker():
        shop.until(lambda: shop.counts()["retrying"] >= 10)


def poison_type(shop: Shop) -> None:
    """Orders come without an address, which no other try can fix."""
    for order in range(6):
        shop.enqueue("invoice.render", {"order": {"id": 4711 + order}})
    with shop.queue.worker():
        shop.until(lambda: shop.counts()["dead"] >= 6)


def stuck_by_a_pause(shop: Shop) -> None:
    """Somebody has paused mails and gone home."""
    shop.ops.pause("email.send", why="bounces are looked into")
    for number in range(25):
        shop.enqueue("email.send", {"to": f"user{number}@example.org"})
    shop.let_time_pass(timedelta(minutes=42))


def too_few_workers(shop: Shop) -> None:
    """Reports take long, and more come than one worker ends."""
    for account in range(60):
        shop.enqueue("report.build", {"account": account})
    shop.let_time_pass(timedelta(minutes=20))


INCIDENTS: dict[str, tuple[Callable[[Shop], None], str]] = {
    "dependency": (dependency_down, "crm.sync"),
    "poison": (poison_type, "invoice.render"),
    "paused": (stuck_by_a_pause, "email.send"),
    "too_few_workers": (too_few_workers, "report.build"),
}


# --- a shop in the middle of its day ------------------------------------------------------------


def seed(shop: Shop) -> str:
    """Jobs of every kind and in every state; answers one that died, and tells its story well."""
    ops = shop.ops
    with shop.queue.worker(concurrency=4):
        for number in range(180):
            shop.enqueue(
                "email.send",
                {"to": f"user{number}@example.org", "subject": "Your order is on its way"},
                tenant=("acme", "globex", "initech")[number % 3],
                key=f"order-{4000 + number}",
            )
        for number in range(70):
            shop.enqueue("crm.sync", {"contact": 900 + number})
        for number in range(12):
            shop.enqueue("image.resize", {"path": f"products/{number}.png"})
        for number in range(7):
            shop.enqueue("image.resize", {"path": f"uploads/broken-{number}.png"})
        story = shop.enqueue("invoice.render", _ORDER, key="invoice-4711", tenant="acme")
        for number in range(4):
            shop.enqueue("invoice.render", {"order": {"id": 4712 + number}})
        shop.until(lambda: shop.counts()["dead"] >= 12 and not shop.counts()["due"])
    ops.replay(story, why="the address was added")
    work_off(shop)
    shop.spread_deaths(but=story)
    shop.an_hour_ago()
    for number in range(30):
        shop.enqueue("cart.remind", {"cart": number}, delay=600 + 300 * number)
    _schedules(shop)
    limits = {"crm.sync.concurrency": "4", "crm.sync.rate": "300/m", "keep_dead": "60d"}
    ops.set_settings(limits, why="the CRM asked for it")
    return story


def _schedules(shop: Shop) -> None:
    wanted: tuple[tuple[str, str, dict[str, Any], TimingOptions], ...] = (
        ("nightly-report", "report.build", {"account": 1}, {"cron": "0 3 * * *", "tz": "Europe/Berlin"}),
        ("remind-carts", "cart.remind", {"cart": 1}, {"every": "15m"}),
        ("weekly-cleanup", "image.resize", {"path": "tmp"}, {"cron": "30 4 * * 0"}),
    )
    for name, job_type, payload, timing in wanted:
        shop.ops.schedules.add(ScheduleWish(name=name, type=job_type, payload=payload, timing=timing))
    shop.ops.schedules.pause("weekly-cleanup", why="until the new disk is here")


_ORDER = {
    "order": {
        "id": 4711,
        "customer": {"name": "Ann Miller", "vip": True},
        "lines": [{"sku": "A-17", "count": 2}, {"sku": "B-3", "count": 1}],
    },
    "note": "gift",
}
