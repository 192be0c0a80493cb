"""Does the overview name what is wrong? Each thing is really made to go wrong."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watched
from tests.browser.stage import INCIDENTS, opened
from tests.observe.scene import parsed
from tests.server.conftest import serving, visitor
from tests.server.process import ServerProcess
from tests.servers.ports import free_port

OLDEST = "windlass_oldest_due_age_seconds"
DEPTH = "windlass_queue_depth"


@pytest.mark.parametrize("cause", INCIDENTS)
def test_the_overview_names_each_incident_rightly(browser: Browser, tmp_path: Path, cause: str) -> None:
    stage, job_type = INCIDENTS[cause]
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        shop.queue.publish()
        stage(shop)
        with shop.queue.worker(concurrency=2), serving(shop.queue, upkeep=False) as house:
            if cause == "too_few_workers":
                shop.until(lambda: shop.counts()["processing"] > 0)
            watched = Watched(browser.new_page(), house.url)
            page = watched.open()
            expect(page.locator(".verdict")).to_have_attribute("data-state", "trouble")
            expect(page.locator(".verdict")).to_have_attribute("data-cause", cause)
            expect(page.locator(".verdict .sentence")).to_contain_text(job_type)
            expect(page).to_have_title(re.compile(r"^\(!\) Overview"))
            if cause == "paused":
                fix(page, job_type)
            assert watched.unexpected() == []
            page.close()
            told = [each.cause for each in shop.ops.status().verdict.findings if each.grave]  # type: ignore[union-attr]
            assert told == ([] if cause == "paused" else [cause])
            shop.go_on.set()


def fix(page: Page, job_type: str) -> None:
    """Press the button beside what is wrong, and see it go."""
    page.locator(".verdict .headline").get_by_role("button", name=f"Resume {job_type}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("#notes")).to_contain_text(f"{job_type} is resumed")
    expect(page.locator(".verdict")).to_have_attribute("data-state", "healthy")
    expect(page).to_have_title("Overview · Windlass")


def test_a_starved_priority_is_seen_beside_the_depth_of_its_type(browser: Browser, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        for cart in range(3):
            shop.enqueue("cart.remind", {"cart": cart})
        shop.let_time_pass(timedelta(minutes=12))
        for number in range(2):
            shop.enqueue("email.send", {"to": f"user{number}@example.org"})
        with serving(shop.queue, upkeep=False) as house:
            page = Watched(browser.new_page(), house.url).open()
            bands = page.locator("section", has_text="Priority bands").locator("tbody tr")
            expect(bands).to_have_count(2)
            for band, due, starved in ((bands.first, "2", 0), (bands.last, "3", 1)):
                expect(band.locator("[data-name=Due]")).to_have_text(due)
                expect(band.locator(".badge", has_text="starved")).to_have_count(starved)
            expect(bands.last.locator("[data-name=Oldest]")).to_contain_text("12m")
            of_type = page.locator("section", has_text="All about types").locator(
                "tr", has_text="cart.remind"
            )
            expect(of_type.locator("[data-name=Due]")).to_have_text("3")
            page.close()
            with visitor(house.url) as caller:
                scraped = parsed(caller.get("/metrics").text)
    lanes = {(labels["type"], labels["priority"]): value for labels, value in scraped[OLDEST]}
    assert lanes["cart.remind", "2"] >= 720 > lanes["email.send", "8"]
    depths = {(each["type"], each["priority"]): n for each, n in scraped[DEPTH] if each["view"] == "due"}
    assert (depths["cart.remind", "2"], depths["email.send", "8"]) == (3, 2)


def test_all_is_well_when_nothing_is_wrong(browser: Browser, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        shop.enqueue("email.send", {"to": "a@example.org"})
        with shop.queue.worker(), serving(shop.queue, upkeep=False) as house:
            shop.until(lambda: shop.counts()["completed"] == 1)
            page = Watched(browser.new_page(), house.url).open()
            expect(page.locator(".verdict")).to_have_attribute("data-state", "healthy")
            expect(page.locator(".verdict .sentence")).to_contain_text("1 worker")
            page.close()


def test_a_connection_that_is_lost_is_seen_and_regained(browser: Browser, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        # Of those that nobody else is given meanwhile.
        port = free_port()
        with serving(shop.queue, port=port) as house:
            watched = Watched(browser.new_page(), house.url)
            page = watched.open()
            expect(page.locator(".connection")).to_have_text("Live")
        expect(page.locator(".connection")).to_have_text("Connection lost")
        shop.enqueue("cart.remind", {"cart": 1}, delay=999)
        with serving(shop.queue, port=port):
            expect(page.locator(".connection")).to_have_text("Live")
            expect(page.locator("[data-live=scheduled]")).to_have_text("1")
            page.close()
        watched.expected = ("ERR_", "Failed to load resource")
        assert watched.unexpected() == []


_BEAT = """() => new Promise((done) => {
    const stream = new EventSource("/api/v1/stream");
    stream.addEventListener("beat", () => { stream.close(); done(); });
})"""


def _answers(url: str) -> bool:
    with visitor(url) as caller, suppress(httpx2.TransportError):
        return caller.get("/health/live").is_success
    return False


def test_a_server_that_is_frozen_is_not_taken_for_a_quiet_one(browser: Browser, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop:
        shop.queue.publish()
        server = ServerProcess(shop.url, tmp_path)
        try:
            shop.until(lambda: _answers(server.url))
            watched = Watched(browser.new_page(), server.url)
            watched.page.clock.install()
            page = watched.open()
            state = page.locator(".connection")
            expect(state).to_have_text("Live")
            # Nothing happens in this shop; the server says that it is there, all the same.
            for _ in range(2):
                page.evaluate(_BEAT)
                page.clock.fast_forward(8_000)
                expect(state).to_have_text("Live")
            server.freeze()
            page.clock.fast_forward(11_000)
            expect(state).to_have_text("Connection lost")
            server.thaw()
            page.clock.fast_forward(2_000)
            expect(state).to_have_text("Live")
            page.close()
        finally:
            server.thaw()
            server.stop()


def test_a_job_that_is_not_there_is_said_to_be_missing(browser: Browser, tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'jobs.db'}") as shop, serving(shop.queue) as house:
        watched = Watched(browser.new_page(), house.url)
        watched.expected = ("404 (Not Found)",)
        for path in ("#/jobs/nothing", "#/jobs?q=nothing"):
            page = watched.open(path)
            expect(page.get_by_role("alert")).to_contain_text("nothing")
        assert watched.complaints
        assert watched.unexpected() == []
        watched.page.close()
