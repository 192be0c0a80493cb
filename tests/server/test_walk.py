"""The walk of docs/http.md, line by line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.server.conftest import House
from tests.waiting import WHOLE_RUN

PAGE = Path(__file__).parents[2] / "docs/http.md"
# What each curl answers with, in order: a status, and a word of it.
ANSWERS = [
    (201, '"created":true'),
    (200, '"created":false'),
    (400, "payload.a must be"),
    (400, '"field":"priority"'),
    (201, '"batch":"'),
    (201, '"batch":"'),
    (200, '"state":"pending"'),
    (200, '"key":"sum-1"'),
    (200, '"done":true'),
    (200, '"state":"cancelled"'),
    (200, '"dry_run":true'),
    (200, '"done":4'),
    (200, '"done":4'),
    (200, '"add.max_attempts"'),
    (200, '"why":"the CRM is being moved"'),
    (200, '"paused":{'),
    (200, '"resumed":true'),
    (200, '"by_hand":false'),
    (201, '"next_at":"'),
    (200, '"history":[]'),
    (200, '"removed":true'),
    (200, '"warnings"'),
    (200, '"step":"hour"'),
    (200, '"events":[{'),
    (200, '"watched":'),
    (200, '"desired":'),
    (200, '"workers":[]'),
    (200, '"verb":"bury"'),
    (200, '"cause":"ended"'),
    (200, '"jobs":['),
    (200, '"next":null'),
    (200, '"groups":['),
    (200, '"oldest":'),
    (200, ""),
    (200, '"kept":[{'),
    (200, '"outcome":"done"'),
    (201, ""),
    (401, "needs an API key"),
    (200, '"name":"ops"'),
]


def test_every_line_of_the_walk_answers_as_it_should(house: House, tmp_path: Path) -> None:
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    walk = found[1].replace("http://127.0.0.1:8080", house.url)
    # Each curl also writes its status and what it was answered to a file of its own.
    curl = tmp_path / "curl"
    curl.write_text(
        "#!/bin/sh\n"
        f'number=$(ls "{tmp_path}" | grep -c "^said-")\n'
        f'/usr/bin/env -S curl -w "\\n%{{http_code}}" "$@" > "{tmp_path}/said-$(printf %03d $number)"\n'
        f"sed '$d' \"{tmp_path}/said-$(printf %03d $number)\"\n"
    )
    curl.chmod(0o755)
    script = f'curl() {{ "{curl}" "$@"; }}\n{walk}'
    done = subprocess.run(
        ["sh", "-eu", "-c", script], capture_output=True, text=True, timeout=WHOLE_RUN, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [path.read_text() for path in sorted(tmp_path.glob("said-*"))]
    assert [int(each.rpartition("\n")[2]) for each in said] == [status for status, _ in ANSWERS]
    for each, (_, word) in zip(said, ANSWERS, strict=True):
        assert word in each
