"""Where do shell jobs run, and who says so where they do not?"""

from __future__ import annotations

import pytest

from tests.server.conftest import serving
from tests.servers import postgres
from tests.surface.conftest import Terminal
from windlass import Queue
from windlass.registry import shell_handler

HINT = "start a worker with --shell"


def work(windlass: Terminal, url: str, *more: str) -> None:
    answer = windlass.apart("worker", "start", "--until-empty", "--db", url, *more)
    assert answer.code == 0, answer.err


def state(windlass: Terminal, url: str, key: str) -> str:
    found: str = windlass.ok("show", key, "--db", url, "--json").json["state"]
    return found


def test_a_file_without_keys_runs_commands_of_this_machine(windlass: Terminal) -> None:
    windlass.ok("run", "--db", "jobs.db", "--key", "a", "--", "true")
    work(windlass, "jobs.db")
    assert state(windlass, "jobs.db", "a") == "completed"


def test_a_file_with_keys_runs_them_under_shell_alone(windlass: Terminal, shop: str) -> None:
    windlass.ok("keys", "create", "root", "--role", "admin")
    windlass.ok("run", "--key", "a", "--", "true")
    nothing = windlass.apart("worker", "start", "--until-empty")
    assert (nothing.code, "say --shell for shell jobs" in nothing.err) == (2, True)
    told = windlass.apart("worker", "start", shop, "--until-empty")
    assert (told.code, "the store has API keys; --shell runs them" in told.err) == (0, True)
    assert windlass.ok("show", "a", "--json").json["state"] == "pending"
    assert windlass.apart("worker", "start", "--shell", "--until-empty").code == 0
    assert windlass.ok("show", "a", "--json").json["state"] == "completed"


def test_postgresql_runs_them_under_shell_alone(windlass: Terminal) -> None:
    with postgres.fresh(postgres.MAJORS[0]) as url:
        windlass.ok("run", "--db", url, "--key", "a", "--", "true")
        nothing = windlass.apart("worker", "start", "--until-empty", "--db", url)
        assert (nothing.code, "say --shell for shell jobs" in nothing.err) == (2, True)
        assert state(windlass, url, "a") == "pending"
        work(windlass, url, "--shell")
        assert state(windlass, url, "a") == "completed"


def test_no_shell_still_runs_none(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "a", "--", "true")
    nothing = windlass.apart("worker", "start", "--until-empty", "--no-shell")
    assert (nothing.code, "there is nothing to serve" in nothing.err) == (2, True)


@pytest.mark.parametrize("words", [("run", "--", "true"), ("enqueue", "shell", '{"command": "true"}')])
def test_who_enqueues_a_command_that_nobody_takes_is_told(
    windlass: Terminal, store_url: str, words: tuple[str, ...]
) -> None:
    made = windlass.ok(words[0], "--db", store_url, "--key", "a", *words[1:])
    assert made.err == f"windlass: no running worker takes this shell job: {HINT}\n"
    assert HINT in windlass.ok("explain", "a", "--db", store_url).out
    queue = Queue(store_url, shell=True)  # noqa: S604 - what is tested
    with queue, queue.worker():
        assert windlass.ok(words[0], "--db", store_url, *words[1:]).err == ""


def test_a_command_that_came_over_http_runs_under_shell_alone(windlass: Terminal, store_url: str) -> None:
    with Queue(store_url) as queue:
        queue.registry.add(shell_handler())
        queue.publish()
        with serving(queue, shell=True) as house:  # noqa: S604 - what is tested
            api = house.caller()
            job = {"type": "shell", "payload": {"command": "true"}}
            assert api.post("/jobs", json=job | {"key": "one"}).status_code == 201
            assert api.post("/jobs/batch", json={"jobs": [job | {"key": "two"}]}).status_code == 201
            hourly = {"name": "tick", "every": "1h"} | job
            assert api.post("/schedules", json=hourly).status_code == 201
            fired = api.post("/schedules/tick/run").json()["job"]
            # A command of this machine that is changed over HTTP is one that came over HTTP.
            local = windlass.ok("run", "--db", store_url, "--key", "mine", "--json", "--", "false").json["id"]
            changed = api.patch(f"/jobs/{local}", json={"payload": {"command": "true"}})
            assert changed.status_code == 200, changed.text
            # A local worker serves, and takes none of them.
            with queue.worker(shell="local"):  # noqa: S604 - what is tested
                windlass.ok("run", "--db", store_url, "--wait", "--", "true")
                told = windlass.ok("explain", "one", "--db", store_url).out
                assert "it came over HTTP" in told
                assert HINT in told
                assert HINT in api.get("/jobs/one/explain").json()["sentence"]
                for name in ("one", "two", fired, local):
                    assert house.queue.get(name).state.value == "pending", name
        work(windlass, store_url, "--shell")
        for name in ("one", "two", fired, local):
            assert queue.get(name).state.value == "completed", name
