"""Do two hosts on one server ever claim the same job?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.crash.processes import ROOT
from tests.servers import netns, standby
from tests.waiting import WHOLE_RUN


def test_two_hosts_in_namespaces_of_their_own_claim_no_job_twice() -> None:
    why = netns.cannot()
    if why is not None:
        pytest.skip(why)
    standby.required(15)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "two_hosts.py", "--jobs", "2000", "--workers", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WHOLE_RUN,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held    every job ran once: 2000" in done.stdout
