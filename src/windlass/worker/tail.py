"""What is kept of an output that may have no end? Its end."""

from __future__ import annotations

import os
from typing import IO

from windlass.outcome import clean_end

KEPT = 16_384
_CHUNK = 65_536


class Tail:
    """The last of what came out of one pipe, however much came before."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe = pipe
        self.open = True
        self._kept = bytearray()
        self._dropped = 0
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> bool:
        """Take one piece; False when there will be no more."""
        piece = os.read(self.pipe.fileno(), _CHUNK)
        self._kept += piece
        if len(self._kept) > 2 * KEPT:
            self._trim()
        self.open = bool(piece)
        return self.open

    @property
    def empty(self) -> bool:
        """Whether nothing came since the last `forget`."""
        return not self._kept

    def text(self) -> str:
        """What is kept, as text that can be stored."""
        self._trim()
        text = self._kept.decode(errors="replace")
        if self._dropped:
            text = f"({self._dropped} bytes before) …{text}"
        return clean_end(text, len(text))

    def forget(self) -> None:
        """Begin anew."""
        self._kept.clear()
        self._dropped = 0

    def _trim(self) -> None:
        over = len(self._kept) - KEPT
        if over > 0:
            del self._kept[:over]
            self._dropped += over
