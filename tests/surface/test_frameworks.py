"""Do the framework examples do what their READMEs say? Real servers, real requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from tests.servers.ports import free_port
from tests.waiting import PATIENCE, until

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


class Project:
    """An example in a folder of its own, and the processes started there."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = Path(shutil.copytree(EXAMPLES / name, folder / name))
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.port = free_port()

    def serve(self, *words: str) -> None:
        """Start a server, and wait until it answers."""
        self._processes.append(subprocess.Popen(self._words(words), cwd=self.folder, env=self._environment))
        until(self._answers)

    def run(self, *words: str, **more: str) -> str:
        """Run a command to its end."""
        done = subprocess.run(
            self._words(words),
            cwd=self.folder,
            env=self._environment | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def post(self, path: str, content: Any = None) -> Any:
        body = b"" if content is None else json.dumps(content).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            self._address(path), data=body, headers={"content-type": "application/json"}
        )
        return json.loads(self._browser.open(request, timeout=PATIENCE).read())

    def get(self, path: str) -> str:
        text: str = self._browser.open(self._address(path), timeout=PATIENCE).read().decode()
        return text

    def submit(self, path: str, **fields: str) -> str:
        """Send a form that is protected by a token."""
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(path))
        assert token is not None
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        text: str = self._browser.open(self._address(path), data, timeout=PATIENCE).read().decode()
        return text

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            assert process.wait(PATIENCE) in (0, -15)

    def _words(self, words: tuple[str, ...]) -> list[str]:
        return [str(BIN / words[0]), *words[1:]]

    def _address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _answers(self) -> bool:
        try:
            self.get("/")
        except urllib.error.HTTPError:
            return True
        except (OSError, http.client.HTTPException):
            return False
        return True


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    made = Project(request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("project", ["fastapi"], indirect=True)
def test_fastapi_runs_jobs_beside_its_requests(project: Project) -> None:
    project.serve("uvicorn", "api:app", "--port", str(project.port))
    order = {"number": 17, "email": "ann@example.org"}
    accepted = project.post("/orders", order)
    assert project.post("/orders", order) == accepted
    until(lambda: json.loads(project.get("/jobs/order:17")) == {"state": "completed"})
    with pytest.raises(urllib.error.HTTPError, match="422"):
        project.post("/orders", {"number": "many"})


@pytest.mark.parametrize("project", ["flask"], indirect=True)
def test_flask_handlers_run_in_the_applications_context(project: Project) -> None:
    project.serve("flask", "--app", "web", "run", "--port", str(project.port))
    project.post("/orders", {"number": 17, "email": "ann@example.org"})
    assert json.loads(project.get("/jobs/order:17")) == {"state": "pending"}
    project.run("windlass", "worker", "start", "web:queue", "--until-empty")
    assert json.loads(project.get("/jobs/order:17")) == {"state": "completed"}
    told = project.run("windlass", "--db", "sqlite:///jobs.db", "show", "order:17", "--json")
    assert json.loads(told)["result"] == "shop@example.org confirms order 17 to ann@example.org"


@pytest.mark.parametrize("project", ["django"], indirect=True)
def test_django_has_a_worker_and_an_admin_page(project: Project) -> None:
    project.run("python", "manage.py", "migrate", "-v", "0")
    assert "No changes detected" in project.run("python", "manage.py", "makemigrations", "--dry-run")
    project.run("python", "manage.py", "check", "--fail-level", "WARNING")
    person = {"DJANGO_SUPERUSER_USERNAME": "ann", "DJANGO_SUPERUSER_PASSWORD": "open sesame"}
    project.run("python", "manage.py", "createsuperuser", "--noinput", "--email", "ann@example.org", **person)
    project.serve("python", "manage.py", "runserver", "--noreload", str(project.port))
    job = project.post("/orders/17/")["job"]
    project.run("python", "manage.py", "windlass_worker", "--until-empty")

    project.submit("/admin/login/?next=/admin/", username="ann", password="open sesame")
    assert "/admin/windlass/job/" in project.get("/admin/")
    page = project.get("/admin/windlass/job/?state=completed")
    assert f'href="/admin/windlass/job/{job}/"' in page
    assert "order:17" in page
    record = project.get(f"/admin/windlass/job/{job}/")
    assert "order 17 confirmed, one of 1 users" in record
    refused = project.submit(f"/admin/windlass/job/{job}/", verb="replay")
    assert "it is completed; replay is for dead jobs" in refused

    project.post("/orders/18/")
    page = project.submit("/admin/windlass/job/order:18/", verb="cancel")
    assert "Cancel: the job is cancelled now" in page
    with pytest.raises(urllib.error.HTTPError, match="404"):
        project.get("/admin/windlass/job/nobody/")


@pytest.mark.parametrize("project", ["django"], indirect=True)
def test_the_admin_page_is_for_those_who_may(project: Project) -> None:
    project.run("python", "manage.py", "migrate", "-v", "0")
    project.serve("python", "manage.py", "runserver", "--noreload", str(project.port))
    assert 'name="password"' in project.get("/admin/windlass/job/")


@pytest.mark.parametrize("project", ["sqlalchemy"], indirect=True)
def test_a_job_is_in_the_sessions_transaction(project: Project) -> None:
    told = project.run("python", "checkout.py", "ann@example.org=40", "bob@example.org=-1")
    assert told.splitlines() == [
        "order 1 of ann@example.org is placed",
        "the order of bob@example.org is rolled back: an order must cost something",
        "order 1: its job is pending, confirmed: False",
    ]
    jobs = json.loads(project.run("windlass", "--db", "shop.db", "list", "--json"))["jobs"]
    assert [job["key"] for job in jobs] == ["order:1"]
    project.run("windlass", "worker", "start", "checkout:queue", "--until-empty")
    assert project.run("python", "checkout.py") == "order 1: its job is completed, confirmed: True\n"
