"""Tune the cyclic garbage collector for worker processes."""

from __future__ import annotations

import gc

# As Python has it: this is loaded before the application. And as we have it: jobs come and go with a dozen
# objects each.
_USUAL = gc.get_threshold()
_RARELY = 5_000


def collect_rarely() -> None:
    """Keep what is loaded by now out of every later search, and search less often; a tenth of a no-op job.

    Whoever has set or switched anything about it knows better.
    """
    if gc.isenabled() and gc.get_threshold() == _USUAL:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_RARELY)
