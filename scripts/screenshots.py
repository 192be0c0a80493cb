"""What does the dashboard look like? Every page, light and dark, wide and on a phone: docs/images/dashboard.

A shop is staged (tests/browser/stage.py), with real workers and a real server; a real browser looks at it.
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from tests.browser.stage import INCIDENTS, Shop, opened, seed  # noqa: E402
from tests.server.conftest import serving  # noqa: E402
from tests.servers import chromium  # noqa: E402

FOLDER = ROOT / "docs/images/dashboard"
SIZES = {"wide": (1280, 860), "phone": (390, 844)}
THEMES = ("light", "dark")
PLAIN = ("overview", "dead", "types", "workers", "schedules", "database", "audit", "settings")
# Enough for flat surfaces and smooth letters, and a third of the size.
COLOURS = 128
MOST_BYTES = 3_000_000
_NEUTRAL = """root => document.querySelectorAll('pre').forEach(
    each => { each.textContent = each.textContent.replaceAll(root, '/app') }
)"""


def main() -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    only = parser.parse_args().only
    found = chromium.program()
    if found is None:
        print(f"screenshots: Chromium is not here: {chromium.INSTALL}", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        pages(browser, only)
        incidents(browser, only)
    total = sum(picture.stat().st_size for picture in FOLDER.glob("*.png"))
    print(f"{len(list(FOLDER.glob('*.png')))} pictures, {total / 1e6:.2f} MB")
    return 0 if total <= MOST_BYTES else 1


def pages(browser: Browser, only: str) -> None:
    """Every page of a shop in the middle of its day."""
    with staged() as shop:
        story = seed(shop)
        for account in range(5):
            shop.enqueue("report.build", {"account": account})
        with shop.queue.worker(concurrency=2), serving(shop.queue, upkeep=False) as house:
            shop.until(lambda: shop.ops.status().fleet.busy > 1)
            more = {"jobs": "jobs?q=type:email.send", "job": f"jobs/{story}", "type": "types/crm.sync"}
            paths = {name: name for name in PLAIN} | more
            for (name, path), theme, size in itertools.product(paths.items(), THEMES, SIZES):
                if only in name:
                    take(browser, f"{house.url}/#/{path}", f"{name}-{theme}-{size}", theme, size)
            shop.go_on.set()


def incidents(browser: Browser, only: str) -> None:
    """What the overview says when something is wrong."""
    for name, (stage, job_type) in INCIDENTS.items():
        if only not in f"incident-{name}":
            continue
        with staged() as shop:
            shop.an_hour_ago(but=job_type)
            stage(shop)
            with shop.queue.worker(concurrency=2), serving(shop.queue, upkeep=False) as house:
                if name == "too_few_workers":
                    shop.until(lambda: shop.ops.status().fleet.busy > 1)
                take(browser, house.url, f"incident-{name}", "light", "wide")
                shop.go_on.set()


@contextmanager
def staged() -> Iterator[Shop]:
    """A shop in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, opened(f"sqlite:///{folder}/jobs.db") as shop:
        shop.queue.publish()
        yield shop


def take(browser: Browser, url: str, name: str, theme: str, size: str) -> None:
    """One picture, with few colours."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light" if theme == "light" else "dark"
    )
    page = context.new_page()
    page.goto(url)
    page.locator("main h1").first.wait_for(state="attached")
    page.locator(".loading").wait_for(state="detached")
    page.locator(".connection.live").wait_for()
    page.wait_for_timeout(1200)
    # A picture for everybody names no folder of the machine that it was taken on.
    page.evaluate(_NEUTRAL, str(ROOT))
    picture = Image.open(io.BytesIO(page.screenshot(full_page=False))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)
    context.close()
    print(name, flush=True)


if __name__ == "__main__":
    sys.exit(main())
