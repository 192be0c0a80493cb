"""How do the runner and a driver talk? A line of JSON each way; what a peer prints goes elsewhere."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from bench.drive.contract import Cannot, Driver
from bench.drive.verbs import VERBS


def serve(driver: Driver) -> None:
    """Answer requests until the runner closes our standard input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**words: Any) -> None:
        out.write(json.dumps(words) + "\n")
        out.flush()

    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("do")
        try:
            if verb == "setup":
                driver.setup()
                answer: dict[str, Any] = {
                    "version": driver.version(),
                    "settings": driver.settings,
                    "leaves_out": driver.leaves_out,
                }
            else:
                answer = VERBS[verb](driver, lambda at: say(at=at), **request)
        except Cannot as reason:
            say(cannot=str(reason))
        except Exception as error:  # noqa: BLE001 - wall: the runner is told, and goes on with the others
            say(failed=f"{type(error).__name__}: {error}"[:600])
        else:
            say(done=answer)
    driver.close()
