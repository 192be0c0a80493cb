"""A server knows whether its store is away: it asks while there is doubt, and only then."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import PATIENCE
from windlass.errors import StoreError, StoreUnavailable
from windlass.server.health import Availability
from windlass.server.problems import Problem


class Store:
    """Answers a probe as the test says."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def probe(self) -> None:
        self.asked += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error


async def until_away(availability: Availability, *, away: bool = True) -> None:
    async with asyncio.timeout(PATIENCE):
        while availability.away is not away:  # noqa: ASYNC110 - it tells nobody when the store is back
            await asyncio.sleep(0.01)


def test_a_store_that_refuses_for_as_long_as_the_patience_is_away_until_it_answers() -> None:
    async def story() -> None:
        store = Store()
        store.error = StoreUnavailable("no connection")
        told: list[None] = []
        availability = Availability(store.probe, patience=0.3, on_away=lambda: told.append(None))
        availability.check()
        availability.doubt()
        await until_away(availability)
        with pytest.raises(Problem, match="nothing was stored"):
            availability.check()
        assert len(told) == 1
        store.error = None
        await until_away(availability, away=False)
        availability.check()

    asyncio.run(story())


def test_a_store_that_does_not_answer_at_all_is_away() -> None:
    async def story() -> None:
        store = Store()
        store.answers.clear()
        availability = Availability(store.probe, patience=0.3)
        forever: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(StoreUnavailable):
            await availability.wait_for(forever)
        assert availability.away
        assert forever.cancelled()
        availability.close()

    asyncio.run(story())


def test_work_that_takes_long_goes_on_while_the_store_answers_others() -> None:
    async def story() -> None:
        store = Store()
        availability = Availability(store.probe, patience=0.2)
        long: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1.0, long.set_result, "done")
        assert await availability.wait_for(long) == "done"
        assert store.asked == 1

    asyncio.run(story())


def test_nobody_asks_a_store_that_is_not_in_doubt() -> None:
    async def story() -> None:
        store = Store()
        availability = Availability(store.probe, patience=5)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(1)
        assert await availability.wait_for(done) == 1
        assert store.asked == 0

    asyncio.run(story())
