"""What happens to the side effects of a dead job that is run again? (F-24)"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.conftest import House, serving, shop, visitor
from tests.waiting import PATIENCE
from windlass import Context, FatalError, JobState


class Bank:
    """A house with a type that moves money: it charges once, and can be made to fail behind that."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.ledger: list[str] = []
        self.broken = True

        @house.queue.job(sensitive=True)
        def pay(ctx: Context, cents: int) -> int:
            with ctx.once("charge") as charge:
                if charge.new:
                    self.ledger.append(f"{ctx.key}: {cents}")
            if self.broken:
                raise FatalError("the receipt could not be printed")
            return cents

        house.queue.publish()

    def died(self, key: str) -> str:
        """The id of a payment that was made, and is dead all the same."""
        job = self.house.queue.enqueue("pay", {"cents": 5}, key=key)
        with self.house.queue.worker():
            assert job.wait(PATIENCE).state is JobState.DEAD
        return job.id


@pytest.fixture
def bank(store_url: str) -> Iterator[Bank]:
    with shop(store_url) as queue, serving(queue) as house:
        yield Bank(house)


def test_f24_a_sensitive_job_is_run_again_only_by_who_confirms_it(bank: Bank) -> None:
    api = bank.house.caller()
    job_id = bank.died("order-1")
    refused = api.post(f"/jobs/{job_id}/replay", json={"why": "again"})
    assert (refused.status_code, refused.json()["job"]) == (409, job_id)
    assert refused.json()["type"].endswith(":confirmation-needed")
    assert api.get(f"/jobs/{job_id}").json()["state"] == "dead"

    bank.broken = False
    done = api.post(f"/jobs/{job_id}/replay", json={"confirm": True, "why": "the printer is fixed"})
    assert done.json()["state"] == "pending"
    with bank.house.queue.worker():
        job = api.get(f"/jobs/{job_id}?wait=60s").json()
    # The same job under the same key, the money moved once, and it is known who sent it back and why.
    assert (job["state"], job["key"], job["replay_count"]) == ("completed", "order-1", 1)
    assert bank.ledger == ["order-1: 5"]
    assert (job["changes"][-1]["verb"], job["changes"][-1]["why"]) == ("replay", "the printer is fixed")


def test_a_filter_confirms_for_all_that_it_chooses(bank: Bank) -> None:
    api = bank.house.caller()
    bank.died("order-1")
    plain = bank.house.queue.enqueue("add", {"a": 1})
    bank.house.ops.bury(plain.id)
    every = {"action": "replay", "filter": {"state": ["dead"]}}
    some = api.post("/jobs/actions", json=every).json()
    assert (some["matched"], some["done"], some["refused"]) == (2, 1, 1)
    assert "is sensitive" in some["refusals"][0]
    assert api.post("/jobs/actions", json=every | {"confirm": True}).json()["done"] == 1


def test_the_contract_and_the_catalogue_tell_of_it(bank: Bank) -> None:
    api = bank.house.caller()
    [kind] = [each for each in api.get("/types").json()["types"] if each["name"] == "pay"]
    assert kind["options"]["sensitive"] is True
    with visitor(bank.house.url) as browser:
        forms = browser.get("/openapi.json").json()["components"]["schemas"]
    assert forms["ReplayForm"]["properties"]["confirm"]["default"] is False


def test_a_completed_job_is_run_again_as_a_new_one(bank: Bank) -> None:
    api = bank.house.caller()
    bank.broken = False
    old = bank.house.queue.enqueue("pay", {"cents": 5}, key="order-3")
    with bank.house.queue.worker():
        assert old.result(PATIENCE) == 5
        refused = api.post(f"/jobs/{old.id}/rerun", json={})
        assert refused.json()["type"].endswith(":confirmation-needed")
        asked, once = {"confirm": True, "why": "twice"}, {"Idempotency-Key": "r-1"}
        made = [api.post(f"/jobs/{old.id}/rerun", json=asked, headers=once).json() for _ in range(2)]
        assert made[0]["id"] == made[1]["id"] != old.id, "a request that is sent twice makes one job"
        job = api.get(f"/jobs/{made[0]['id']}?wait=60s").json()
    assert (job["state"], job["key"], job["rerun_of"]) == ("completed", None, old.id)
    assert job["changes"][0]["why"] == "twice"
