"""Where do the shells come from that completions are typed in? From Debian's packages."""

from __future__ import annotations

import shutil
from pathlib import Path

INSTALL = "apt-get install zsh fish"


def program(shell: str) -> Path | None:
    """The shell's program, if it is installed."""
    found = shutil.which(shell)
    return None if found is None else Path(found)
