"""A worker that is started while its database is away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.app import work
from tests.crash.processes import ROOT, Site
from tests.crash.test_fleet import answer
from tests.servers import postgres, standby
from tests.servers.ports import free_port
from tests.waiting import PATIENCE, until
from windlass.job import JobState


@pytest.mark.parametrize("count", [1, 2])
def test_it_waits_for_the_server_says_so_and_then_works(tmp_path: Path, count: int) -> None:
    standby.required(15)
    port = free_port()
    with postgres.running(15) as server, Site(tmp_path, server.url()) as site:
        [job_id] = site.enqueue(work.draft(0))
        server.stop()
        fleet = ("--count", str(count), "--probe", str(port))
        worker = site.start("tests.crash.app:queue", *fleet, looking=False)
        until(lambda: "worker.waits_for_store" in site.said(), "it says that it waits")
        until(lambda: "waits for the store" in told(port), "the health address says so")
        assert worker.poll() is None
        server.start()
        until(lambda: answer(port)[0] == 200, "it is ready")
        until(lambda: completed(site, job_id), "it works")
        # One line for each worker, however often it tried.
        assert site.said().count("worker.waits_for_store") <= 2 * count, site.said()
        worker.terminate()
        assert worker.wait(PATIENCE) == 0


def told(port: int) -> str:
    try:
        status, text = answer(port)
    except OSError:
        # Nobody answers there yet.
        return ""
    assert status == 503
    return text


def completed(site: Site, job_id: str) -> bool:
    job = site.store.get(job_id)
    return job is not None and job.state is JobState.COMPLETED


def test_what_no_waiting_would_mend_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader, " * 100)
    for url, code in (
        (f"sqlite:///{tmp_path}/letter.txt", 3),
        ("postgresql://localhost/jobs?windlass_nonsense=on", 2),
    ):
        refused = start_once(url)
        assert (refused.returncode, refused.stdout) == (code, ""), refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_a_single_pass_does_not_wait(tmp_path: Path) -> None:
    refused = start_once(f"postgresql://postgres@/jobs?host={tmp_path}", "--until-empty")
    assert refused.returncode == 3
    assert "cannot be reached" in refused.stderr


def start_once(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    windlass = Path(sys.executable).with_name("windlass")
    line = [str(windlass), "--db", url, "worker", "start", *options]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
