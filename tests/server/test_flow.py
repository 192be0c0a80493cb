"""What holds remote workers back? Also what only the catalogue tells a server."""

from __future__ import annotations

import httpx2

from tests.server.conftest import House


def test_what_code_says_of_a_shared_key_holds_for_remote_workers(house: House, api: httpx2.Client) -> None:
    house.queue.limit("crm", concurrency=1)
    house.queue.job(name="crm.read", limit_key="crm")(_read)
    house.queue.job(name="crm.write", limit_key="crm")(_write)
    for name in ("crm.read", "crm.write"):
        house.queue.enqueue(name, {})
    assert house.ops.limit("key:crm").concurrency == 1
    asked = {"worker": "w1", "types": ["crm.read", "crm.write"], "limit": 5}
    assert len(api.post("/leases", json=asked).json()["leases"]) == 1


def _read() -> None: ...


def _write() -> None: ...
