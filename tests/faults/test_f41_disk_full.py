"""F-41: the store's disk is full. Jobs are refused, none is lost, and all goes on once there is room."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.faults.scene import Yard
from tests.server.conftest import serving
from tests.servers import disks, postgres, standby
from tests.waiting import until
from windlass.errors import StoreUnavailable

# More than fits into what a store has set aside for itself.
LARGE = "x" * 30_000


class Place(NamedTuple):
    """A store, and the disk that it is on."""

    url: str
    disk: disks.Disk


class OnSmallDisk(postgres.Server):
    """A server whose data are on a disk of their own."""

    disk: disks.Disk

    def __init__(self, programs: Path, closing: ExitStack) -> None:
        self._closing = closing
        # Without it the end of the log would be found first, which a server does not survive.
        super().__init__(programs, max_wal_size="2GB")

    def _make_data(self) -> None:
        self.disk = self._closing.enter_context(disks.small(self.folder / "disk", 160))
        if "user" in self._account:
            shutil.chown(self.disk.folder, self._account["user"])
        self._data = self.disk.folder / "data"
        super()._make_data()


@pytest.fixture(params=["sqlite", "postgres-15"])
def place(request: pytest.FixtureRequest, tmp_path: Path, closing: ExitStack) -> Iterator[Place]:
    if request.param == "sqlite":
        disk = closing.enter_context(disks.small(tmp_path / "disk", 20))
        yield Place(f"sqlite:///{disk.folder}/jobs.db", disk)
    else:
        server = OnSmallDisk(standby.required(15), closing)
        closing.callback(server.close)
        server.start()
        yield Place(server.new_database(), server.disk)


def test_f41_a_full_disk_refuses_jobs_loses_none_and_is_written_to_when_it_has_room(
    place: Place, make_yard: Callable[[str], Yard]
) -> None:
    yard = make_yard(place.url)

    @yard.queue.job
    def heavy(text: str) -> int:
        return len(text)

    def enqueue_until_refused() -> None:
        while True:
            accepted.append(heavy.enqueue(LARGE).id)

    yard.go_on.clear()
    yard.put(3)
    with yard.queue.worker(), serving(yard.queue) as house:
        api = house.caller()
        until(lambda: len(yard.started) == 3, "the jobs begin")
        accepted = [post(api).json()["id"]]
        place.disk.fill()
        try:
            refusal = until(lambda: refused(api, accepted), "there is no room any more")
            assert refusal is not None
            assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1"), refusal.text
            with pytest.raises(StoreUnavailable, match=r"no space left|no room left") as failure:
                enqueue_until_refused()
            assert failure.value.retryable
            yard.go_on.set()
            until(lambda: len(yard.ran) == 3, "what runs goes on to its end")
        finally:
            place.disk.free()
        # Nothing is started again, neither worker nor server.
        yard.finish()
        accepted.append(until(lambda: post(api), "jobs are accepted again").json()["id"])
        yard.finish()
        assert {api.get(f"/jobs/{each}").json()["state"] for each in accepted} == {"completed"}
    assert yard.started == yard.ran == dict.fromkeys(range(3), 1)


def post(api: httpx2.Client) -> httpx2.Response:
    return api.post("/jobs", json={"type": "heavy", "payload": {"text": LARGE}})


def refused(api: httpx2.Client, accepted: list[str]) -> httpx2.Response | None:
    """The refusal of one more job, unless it is accepted."""
    answer = post(api)
    if not answer.is_success:
        return answer
    accepted.append(answer.json()["id"])
    return None
