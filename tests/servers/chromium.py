"""Where does a real browser come from? Debian's package, started by Playwright."""

from __future__ import annotations

import shutil
from pathlib import Path

INSTALL = "apt-get install chromium-headless-shell"
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def program() -> Path | None:
    """Chromium's program, if it is installed."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return None if found is None else Path(found)
