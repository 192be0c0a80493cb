"""Can the person on call see what is wrong, and fix it? In a real browser."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Watched
from tests.browser.stage import SCRIPT, Shop, work_off
from tests.server.conftest import House
from windlass.job import JobState
from windlass.store.jobs import Filter

PAGES = ("overview", "jobs", "dead", "types", "workers", "schedules", "database", "audit", "settings")


@pytest.fixture(scope="module", autouse=True)
def _seeded(shop: Shop) -> None:
    """Some jobs of each kind, which no test changes."""
    for number in range(8):
        shop.enqueue("email.send", {"to": f"user{number}@example.org"}, tenant="acme", key=f"order-{number}")
    shop.enqueue("image.resize", {"path": "broken.png"})
    shop.enqueue("cart.remind", {"cart": 7}, delay=3600)
    work_off(shop)


def dead_invoice(shop: Shop, **fields: Any) -> str:
    job_id = shop.enqueue("invoice.render", {"order": {"id": 1}, **fields})
    work_off(shop)
    return job_id


def test_every_page_is_there_and_accessible_in_light_and_dark(look: Watched, shop: Shop) -> None:
    job_id = dead_invoice(shop)
    look.open()
    light = (*PAGES, f"jobs/{job_id}", "types/email.send")
    # What differs is the colours, and these pages have all of them.
    dark = ("overview", "jobs", "dead", f"jobs/{job_id}")
    for theme, path in [("light", path) for path in light] + [("dark", path) for path in dark]:
        look.page.emulate_media(color_scheme="light" if theme == "light" else "dark")
        page = look.open(f"#/{path}")
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.locator(".loading")).to_have_count(0)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path} in {theme}: {found.generate_report()}"


def test_a_phone_has_no_page_that_is_wider_than_it(look: Watched) -> None:
    look.page.set_viewport_size({"width": 380, "height": 800})
    for path in PAGES:
        page = look.open(f"#/{path}")
        expect(page.locator("main h1")).to_have_count(1)
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= 380, path


def test_a_job_is_found_by_its_payload_and_its_traceback_read(look: Watched, shop: Shop) -> None:
    job_id = dead_invoice(shop, note="blue-17")
    page = look.open("#/jobs")
    page.get_by_label("Search jobs").fill("state:dead payload.note:blue-17")
    page.get_by_label("Search jobs").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("tbody tr a").first.click()
    expect(page.locator("h1")).to_contain_text("invoice.render")
    expect(page.locator(".traceback")).to_contain_text("ValueError: order 1 has no address")
    expect(page.locator("[data-explained]")).to_contain_text("no address")
    assert job_id in page.url


def test_completions_come_while_typing_and_are_taken_by_keyboard(look: Watched) -> None:
    page = look.open("#/jobs")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search jobs")).to_be_focused()
    page.keyboard.type("type:ema")
    expect(page.get_by_role("option")).to_have_text(["type:email.send"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Search jobs")).to_have_value("type:email.send ")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(8)
    assert "q=type" in page.url


def test_a_dead_job_is_edited_and_replayed(look: Watched, shop: Shop) -> None:
    job_id = dead_invoice(shop)
    page = look.open(f"#/jobs/{job_id}")
    page.get_by_role("button", name="Edit and replay").click()
    page.get_by_label("Payload").fill('{"order": {"id": 1')
    page.get_by_role("button", name="Replay", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    page.get_by_label("Payload").fill('{"order": {"id": 12345678901234567890, "address": "Main Street 1"}}')
    page.get_by_label("Why (for the audit log)").fill("the address was missing")
    page.get_by_role("button", name="Replay", exact=True).last.click()
    expect(page.locator("#notes")).to_contain_text("pending")
    work_off(shop)
    expect(page.locator("h1 .badge")).to_have_text("completed")
    # No digit of a large number is lost, on the way in or out.
    expect(page.locator(".story")).to_contain_text("the address was missing")
    expect(page.locator("main")).to_contain_text("invoice-12345678901234567890.pdf")
    expect(page.locator(".panel", has_text="Payload").last).to_contain_text("id: 12345678901234567890")
    assert shop.ops.show(job_id).replay_count == 1


def test_a_dead_job_is_replayed_by_one_click_unless_its_type_is_sensitive(look: Watched, shop: Shop) -> None:
    @shop.queue.job(name="card.charge", sensitive=True, max_attempts=1)
    def charge(cents: int) -> None:
        raise ConnectionError("no answer")

    job_id, charged = dead_invoice(shop), shop.enqueue("card.charge", {"cents": 5})
    work_off(shop)
    page = look.open(f"#/jobs/{job_id}")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("The job is pending")
    expect(page.locator("h1 .badge")).to_have_text("due")
    assert shop.ops.show(job_id).state is JobState.PENDING

    # The browser reports the refusal, and the page asks.
    look.expected = ("409 (Conflict)",)
    page = look.open(f"#/jobs/{charged}")
    page.get_by_role("button", name="Replay", exact=True).click()
    page.get_by_label("I have looked at them").check()
    assert shop.ops.show(charged).state is JobState.DEAD
    page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("h1 .badge")).to_have_text("due")
    work_off(shop)


def test_a_scheduled_job_shows_when_it_runs_and_its_priority(look: Watched, shop: Shop) -> None:
    job_id = shop.enqueue("cart.remind", {"cart": 3}, delay=3 * 3600, priority=7, tenant="planned")
    run_at = shop.ops.show(job_id).run_at
    page = look.open("#/jobs?q=tenant:planned%20state:scheduled")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("[data-name=State]")).to_have_text("scheduled")
    expect(row.locator("[data-name=Priority]")).to_have_text("7")
    expect(row.locator("[data-name=When] time")).to_have_attribute(
        "datetime", run_at.isoformat().replace("+00:00", "Z")
    )
    expect(row.locator("[data-name=When]")).to_have_text(re.compile("^in (3h|2h)"))
    row.get_by_role("link").first.click()
    expect(page.locator("h1 .badge")).to_have_text("scheduled")
    expect(page.locator(".facts")).to_contain_text("Run at")
    expect(page.locator(".story .next")).to_contain_text("Runs in")


def test_a_type_is_paused_and_resumed(look: Watched, shop: Shop) -> None:
    page = look.open("#/types")
    page.get_by_role("button", name="Pause cart.remind").click()
    page.get_by_label("Why (for the audit log)").fill("too many mails")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("cart.remind is paused")
    expect(page.locator("tr", has_text="cart.remind")).to_contain_text("paused")
    [pause] = shop.ops.store.switches().pauses.values()
    assert (pause.type, pause.why) == ("cart.remind", "too many mails")
    page.get_by_role("button", name="Resume cart.remind").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("tr", has_text="cart.remind").locator(".badge")).not_to_have_text("paused")
    assert not shop.ops.store.switches().pauses


def test_a_group_of_dead_letters_is_replayed_at_a_rate(look: Watched, shop: Shop) -> None:
    for number in range(6):
        shop.enqueue("image.resize", {"path": f"broken-{number}.png"})
    work_off(shop)
    dead = shop.ops.store.count(Filter(types=("image.resize",), states=(JobState.DEAD,)), limit=100)
    page = look.open("#/dead")
    group = page.locator("tr", has_text="image.resize")
    group.get_by_role("button", name=re.compile("Replay all")).click()
    expect(page.locator("[data-count]")).to_have_attribute("data-count", str(dead))
    page.get_by_label("Jobs per second").fill("100")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("#notes")).to_contain_text(f"{dead} jobs sent back to be run")
    expect(page.locator("tr", has_text="image.resize")).to_have_count(0)
    work_off(shop)
    expect(page.locator("tr", has_text="image.resize")).to_be_visible()


def test_chosen_jobs_are_acted_on_after_a_count(look: Watched, shop: Shop) -> None:
    ids = [shop.enqueue("cart.remind", {"cart": number}, delay=7200, tenant="bulk") for number in range(3)]
    page = look.open("#/jobs?q=tenant:bulk")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Choose all on this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    expect(page.locator("[data-count]")).to_have_attribute("data-count", "3")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#notes")).to_contain_text("3 jobs cancelled")
    assert {shop.ops.show(job_id).state for job_id in ids} == {"cancelled"}


def test_chosen_jobs_get_another_priority_and_another_time(look: Watched, shop: Shop) -> None:
    ids = [shop.enqueue("cart.remind", {"cart": number}, delay=7200, tenant="later") for number in range(2)]
    page = look.open("#/jobs?q=tenant:later")
    for button, label, value, note in (
        ("Priority", "0 to 10, higher first.", "9", "2 jobs set to priority 9"),
        ("Reschedule", "Let it run after this time from now.", "3d", "2 jobs rescheduled"),
    ):
        page.get_by_label("Choose all on this page").check()
        page.get_by_role("toolbar").get_by_role("button", name=button).click()
        page.get_by_label(label).fill(value)
        expect(page.locator("[data-count]")).to_have_attribute("data-count", "2")
        page.locator("dialog").get_by_role("button", name=button).click()
        expect(page.locator("#notes")).to_contain_text(note)
    found = [shop.ops.show(job_id) for job_id in ids]
    assert {job.priority for job in found} == {9}
    assert all(job.run_at - shop.ops.now() > timedelta(days=2) for job in found)


def test_an_operation_goes_on_after_a_reload_and_can_be_paused_and_stopped(look: Watched, shop: Shop) -> None:
    for number in range(50):
        shop.enqueue("cart.remind", {"cart": number}, delay=7200, tenant="slow")
    page = look.open("#/jobs?q=tenant:slow")
    page.get_by_label("Choose all on this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    expect(page.locator("[data-count]")).to_have_attribute("data-count", "50")
    page.get_by_label("Jobs per second").fill("1")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("dialog progress")).to_be_visible()
    page.get_by_role("button", name="Close, and let it go on").click()
    expect(page.locator("dialog")).to_have_count(0)
    shown = page.locator(".operation")
    expect(shown).to_contain_text("of 50 jobs")
    page.reload()
    expect(shown).to_contain_text("running")
    shown.get_by_role("button", name="Pause").click()
    expect(shown).to_contain_text("paused")
    shown.get_by_role("button", name="Resume").click()
    expect(shown).to_contain_text("running")
    shown.get_by_role("button", name="Stop").click()
    expect(shown).to_have_count(0)
    [stopped] = [each for each in shop.ops.operations.list() if each.expected == 50]
    assert (stopped.state, stopped.reached.matched < 50) == ("stopped", True)


def test_who_types_a_reason_has_nothing_counted_and_a_rate_counts_once(look: Watched, shop: Shop) -> None:
    shop.enqueue("cart.remind", {"cart": 1}, delay=7200, tenant="typed")
    look.page.clock.install()
    page = look.open("#/jobs?q=tenant:typed")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Choose all on this page").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    expect(page.locator("[data-count]")).to_have_attribute("data-count", "1")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "actions" in request.url else None)
    # From here on no time passes by itself: a busy machine may take long from one key to the next.
    page.clock.pause_at(page.evaluate("() => Date.now() / 1000") + 1)
    page.get_by_label("Why (for the audit log)").press_sequentially("nobody wants it")
    page.get_by_label("Jobs per second").press_sequentially("0.25")
    page.clock.run_for(1000)
    expect(page.locator(".preview")).to_contain_text("in about 4s")
    assert len(asked) == 1


def test_what_is_shown_and_what_is_acted_on_are_the_same_to_the_last_digit(look: Watched) -> None:
    page = look.open("#/jobs")
    told = page.evaluate(
        """async () => {
            const query = await import("/static/js/search.js");
            const exact = await import("/static/js/api.js");
            return exact.write(query.asForm(query.read("state:dead payload.id:12345678901234567891").filter));
        }"""
    )
    assert "12345678901234567891" in told


def test_a_number_changes_without_a_reload(look: Watched, shop: Shop) -> None:
    page = look.open()
    scheduled = page.locator("[data-live=scheduled]")
    expect(page.locator(".connection")).to_have_text("Live")
    before = int(scheduled.inner_text())
    shop.enqueue("cart.remind", {"cart": 1}, delay=9999)
    expect(scheduled).to_have_text(str(before + 1))


def test_what_stands_in_a_payload_or_an_error_is_shown_as_text(look: Watched, shop: Shop) -> None:
    shop.enqueue("image.resize", {"path": f"broken {SCRIPT}"}, key=SCRIPT[:60])
    job_id = dead_invoice(shop, note=SCRIPT)
    work_off(shop)
    for path in (f"jobs/{job_id}", "jobs?q=state:dead", "dead", "overview", "audit"):
        page = look.open(f"#/{path}")
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.locator("main script, main img")).to_have_count(0)
        assert "stolen" not in page.title()
    page = look.open(f"#/jobs/{job_id}")
    expect(page.locator("main")).to_contain_text("<script>document.title")


def test_what_would_reorder_a_text_is_shown_escaped(look: Watched, shop: Shop) -> None:
    job_id = shop.enqueue("image.resize", {"path": "broken\u202egnp.\u2066exe"}, key="pay\u202elap")
    work_off(shop)
    for path in (f"jobs/{job_id}", "jobs?q=type:image.resize"):
        page = look.open(f"#/{path}")
        expect(page.locator("main")).to_contain_text("pay\\u202elap")
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.content())
    expect(look.open(f"#/jobs/{job_id}").locator("main")).to_contain_text("broken\\u202egnp.\\u2066exe")


def test_a_link_that_was_cut_short_finds_nothing_and_says_so(look: Watched) -> None:
    look.expected = ("404 (Not Found)",)
    look.open()
    for path in ("jobs/%E0%A4%A", "types/%"):
        expect(look.open(f"#/{path}").locator("main h1")).to_have_count(1)


def test_the_keyboard_leads_everywhere(look: Watched) -> None:
    page = look.open()
    expect(page.locator(".verdict")).to_be_visible()
    for key, name in {
        "j": "Jobs",
        "d": "Dead letters",
        "t": "Types",
        "w": "Workers",
        "s": "Schedules",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("main h1")).to_contain_text(name)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Search jobs")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_light_and_dark_are_switched_and_remembered(look: Watched) -> None:
    page = look.open()
    page.get_by_label("Switch between light and dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_traceback_of_a_group_is_read_where_it_stands(look: Watched, shop: Shop) -> None:
    dead_invoice(shop)
    page = look.open("#/dead")
    page.locator("tr", has_text="invoice.render").locator("summary").click()
    expect(page.locator(".traceback")).to_contain_text("ValueError: order 1 has no address")


def test_a_worker_tells_its_slots_and_its_memory(look: Watched, shop: Shop) -> None:
    with shop.queue.worker(concurrency=3):
        page = look.open("#/workers")
        row = page.locator("tr", has_text="running")
        expect(row.locator("[data-name=Memory]")).to_have_text(re.compile(r"^[\d.]+ [MG]B$"))
        expect(row.locator("[data-name=Slots]")).to_have_text("0 / 3")
        expect(page.locator("main > p")).to_contain_text(
            re.compile(r"1 alive, 0 of 3 slots busy, [\d.]+ [MG]B")
        )


def test_pools_tell_how_full_they_are(look: Watched, shop: Shop) -> None:
    # One is called as something that every object of JavaScript has.
    with shop.queue.worker(pools=["mail=email.*:2", "constructor=cart.*:3"]):
        page = look.open("#/workers")
        for name, slots in (("mail", 2), ("constructor", 3)):
            row = page.locator("section", has_text="Pools").locator("tr", has_text=name)
            expect(row.locator("[data-name=Workers]")).to_have_text("1")
            expect(row.locator("[data-name=Slots]")).to_have_text(f"0 / {slots}")


def test_a_chart_tells_what_it_was_under_the_pointer(look: Watched, shop: Shop) -> None:
    shop.an_hour_ago()
    page = look.open()
    page.locator(".chart svg").first.hover()
    expect(page.locator(".tip.shown")).to_contain_text("completed")
    page.mouse.move(0, 0)
    expect(page.locator(".tip.shown")).to_have_count(0)


def test_a_job_that_waits_gets_another_priority(look: Watched, shop: Shop) -> None:
    job_id = shop.enqueue("cart.remind", {"cart": 1}, delay=5000)
    page = look.open(f"#/jobs/{job_id}")
    page.get_by_role("button", name="Priority").click()
    page.get_by_label("0 to 10").fill("9")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#notes")).to_contain_text("The priority is 9")
    assert shop.ops.show(job_id).priority == 9


def test_every_page_answers_to_a_link_that_somebody_pasted(browser: Browser, house: House) -> None:
    page = Watched(browser.new_page(), house.url).open("#/jobs?q=type%3Aemail.send")
    expect(page.locator("tbody tr")).to_have_count(8)
    expect(page.get_by_label("Search jobs")).to_have_value("type:email.send")
    page.close()
