"""Does the server keep its contract? Requests made from it find no other answers than it tells of."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.server.conftest import House, visitor
from tests.server.contract import words
from tests.waiting import WHOLE_RUN
from windlass.ops.document import ToldJob, plain, told_document


@pytest.mark.slow
def test_generated_requests_find_nothing_that_the_contract_does_not_tell(
    house: House, tmp_path: Path
) -> None:
    key = house.key("root", "admin", rate=1_000_000.0)
    done = subprocess.run(
        words(house.url, key, examples=3),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WHOLE_RUN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_jobs_document_is_what_the_contract_says(house: House) -> None:
    job = house.queue.enqueue("add", {"a": 1}).get()
    document = told_document(job, house.ops.ties(job), house.ops.now())
    fields = {field.encode_name for field in msgspec.structs.fields(ToldJob)}
    assert set(plain(document)) == fields


def test_the_documentation_needs_no_other_host_and_names_every_route(house: House) -> None:
    with visitor(house.url) as browser:
        page = browser.get("/docs")
        contract = browser.get("/openapi.json").json()
        assert browser.head("/docs").status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?://|<script", page.text)
    assert contract["openapi"] == "3.1.0"
    for path, methods in contract["paths"].items():
        assert path in page.text
        for operation in methods.values():
            assert operation["description"]


def test_health_tells_what_it_knows(house: House) -> None:
    with visitor(house.url) as probe:
        for path in ("/health", "/health/live", "/health/ready"):
            assert (probe.get(path).status_code, probe.get(path).json()["ok"]) == (200, True)
