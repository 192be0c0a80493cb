"""Who is let in by a browser, what does it show them, and can another site act in their name?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.stage import Shop
from tests.server.conftest import House, serving, visitor


@pytest.fixture(scope="module")
def house(shop: Shop) -> Iterator[House]:
    """A server with keys, so that everybody needs one."""
    shop.enqueue("cart.remind", {"cart": 1}, delay=3600)
    with serving(shop.queue) as house:
        house.key("root", "admin")
        assert house.caller(house.key("root", "admin")).get("/keys").status_code == 200
        yield house


def log_in(browser: Browser, house: House, key: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(house.url)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()
    return page


def test_a_key_logs_in_and_out(browser: Browser, house: House) -> None:
    page = log_in(browser, house, "wl_nothing_at_all")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.get_by_label("API key").fill(house.key("ann", "operator"))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.locator(".connection")).to_have_text("Live")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.context.cookies() == []


def test_what_is_done_by_cookie_stands_in_the_audit_log(browser: Browser, house: House) -> None:
    key = house.key("ann", "operator")
    page = log_in(browser, house, key)
    page.goto(f"{house.url}/#/types/cart.remind")
    page.get_by_role("button", name="Pause cart.remind").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("paused")
    [pause] = house.ops.store.switches().pauses.values()
    assert pause.by == f"ann (key {key.split('_')[1]})"
    house.ops.resume("cart.remind")


def test_a_viewer_is_shown_no_button_that_would_be_refused(browser: Browser, house: House) -> None:
    page = log_in(browser, house, house.key("eve", "viewer"))
    expect(page.locator("nav")).not_to_contain_text("Audit")
    page.goto(f"{house.url}/#/types")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    page.goto(f"{house.url}/#/settings")
    expect(page.locator("main h1")).to_have_text("Settings")
    expect(page.locator("main")).not_to_contain_text("API keys")


def test_a_key_that_is_revoked_ends_the_session(browser: Browser, house: House) -> None:
    key = house.key("bob", "operator")
    page = log_in(browser, house, key)
    expect(page.locator(".verdict")).to_be_visible()
    root = house.caller(house.key("root", "admin"))
    assert root.delete(f"/keys/{key.split('_')[1]}").status_code == 200
    page.goto(f"{house.url}/#/types")
    expect(page.get_by_label("API key")).to_be_visible()


def test_no_other_site_acts_by_a_cookie(house: House) -> None:
    key = house.key("ann", "operator")
    port = house.url.rpartition(":")[2]
    with visitor(house.url) as browser:
        ours = {"Origin": house.url}
        assert browser.post("/login", json={"key": key}).status_code == 403
        assert (
            browser.post("/login", json={"key": key}, headers={"Origin": "http://evil.example"}).status_code
            == 403
        )
        begun = browser.post("/login", json={"key": key}, headers=ours)
        assert begun.status_code == 200
        said = begun.headers["set-cookie"]
        assert f"windlass-{port}=" in said
        assert "HttpOnly; SameSite=Strict" in said
        token = browser.get("/session").json()["token"]
        good = {**ours, "X-Windlass-Token": token}
        path = "/api/v1/types/cart.remind/resume"
        assert browser.get("/api/v1/types").status_code == 200
        for headers in (
            {},
            ours,
            {"X-Windlass-Token": token},
            {**good, "Origin": "http://evil.example"},
            {**good, "Origin": "null"},
            {**ours, "X-Windlass-Token": "0" * 64},
        ):
            assert browser.post(path, json={}, headers=headers).status_code == 403, headers
        assert browser.post(path, json={}, headers=good).status_code == 200
        # A key in the header needs none of that, and is no cookie's business.
        bearer = {"Authorization": f"Bearer {key}"}
        assert browser.post(path, json={}, headers=bearer).status_code == 200
    with visitor(house.url) as proxied:
        secure = {"Origin": house.url, "X-Forwarded-Proto": "https"}
        said = proxied.post("/login", json={"key": key}, headers=secure).headers["set-cookie"]
        # Anybody may send the header: only a trusted proxy is believed (tests/server/test_proxies.py).
        assert said.startswith("windlass")
        assert "Secure" not in said


def test_files_are_served_under_a_strict_policy(house: House) -> None:
    with visitor(house.url) as browser:
        page = browser.get("/")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers.get_list("content-security-policy") == [policy]
        assert browser.get("/static/js/app.js").headers["content-type"].startswith("text/javascript")
        mark = browser.get("/static/js/app.js").headers["etag"]
        assert browser.get("/static/js/app.js", headers={"If-None-Match": mark}).status_code == 304
        for path in (
            "/static/",
            "/static/../server/app.py",
            "/static/%2e%2e/ops/ops.py",
            "/static/js/__init__.py",
        ):
            assert browser.get(path).status_code == 404
