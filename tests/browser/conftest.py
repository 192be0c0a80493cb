"""How does a test look at the dashboard? In a real Chromium, on a real server, one of each for a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.stage import Shop, opened
from tests.server.conftest import House, serving
from tests.servers import chromium
from tests.servers.postgres import missing
from tests.waiting import PATIENCE

PATIENCE_MS = int(PATIENCE * 1000)
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the module."""
    found = chromium.program()
    if found is None:
        missing(f"Chromium is not here: {chromium.INSTALL}")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One shop for the module."""
    with opened(f"sqlite:///{tmp_path_factory.mktemp('shop') / 'jobs.db'}") as shop:
        yield shop


@pytest.fixture(scope="module")
def house(shop: Shop) -> Iterator[House]:
    """One server for the module, which asks for no key."""
    with serving(shop.queue) as house:
        yield house


class Watched:
    """A page, and whatever the browser complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        # What a test brings about itself, and expects to be complained about.
        self.expected: tuple[str, ...] = ()
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: str = "") -> Page:
        """Go to a page of the dashboard."""
        self.page.goto(f"{self.url}/{path}")
        return self.page

    def unexpected(self) -> list[str]:
        """Complaints that the test did not bring about: errors, and breaches of the security policy."""
        return [each for each in self.complaints if not any(known in each for known in self.expected)]


@pytest.fixture
def look(browser: Browser, house: House) -> Iterator[Watched]:
    """A page of its own for the test; whatever the browser complains of fails it."""
    context = browser.new_context()
    watched = Watched(context.new_page(), house.url)
    yield watched
    context.close()
    assert watched.unexpected() == []


def folder() -> Path:
    """Where the dashboard's files are."""
    return Path(__file__).parents[2] / "src/windlass/dashboard"
