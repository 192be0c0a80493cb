"""How do workers live from a terminal? Real processes, real signals."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx2
import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE, until
from windlass import Queue
from windlass.cli import serve
from windlass.config import ServerConfig


@contextmanager
def _worker(windlass: Terminal, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that has begun to claim, ended by force if the test has not ended it."""
    with windlass.start("worker", "start", *args) as process:
        try:
            _read_until(process, "worker.started")
            yield process
        finally:
            process.kill()


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"ended without saying {words!r}: {seen}")


def _at_once(windlass: Terminal) -> None:
    windlass.ok("config", "set", "shell.retry.base", "0")
    windlass.ok("config", "set", "shell.retry.jitter", "0")


def test_a_worker_is_started_seen_and_stopped(windlass: Terminal) -> None:
    with _worker(windlass, "--concurrency", "3") as process:
        [seen] = windlass.ok("worker", "health", "--json").json["workers"]
        assert (seen["state"], seen["alive"], seen["slots"], seen["pid"]) == ("running", True, 3, process.pid)
        assert "running" in windlass.ok("worker", "health").out
        assert windlass.ok("worker", "stop").out == f"{seen['id']}: stopped\n"
        assert f"stop  worker  {seen['id']}" in windlass.ok("audit").out
        assert process.wait(PATIENCE) == 0
    assert windlass("worker", "health").code == 1
    assert windlass.ok("worker", "stop").out == "no worker of this store runs on this machine\n"


def test_a_worker_that_was_killed_is_seen_to_be_dead_at_once(windlass: Terminal) -> None:
    with _worker(windlass) as process:
        process.kill()
        process.wait(PATIENCE)
        answer = windlass("worker", "health", "--json")
        assert answer.code == 1
        [seen] = answer.json["workers"]
        assert (seen["state"], seen["alive"]) == ("dead", False)
        assert "dead" in windlass("worker", "health").out
    assert windlass.ok("status", "--json").json["fleet"]["alive"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_running_jobs_finish(windlass: Terminal, number: signal.Signals) -> None:
    with _worker(windlass) as process:
        windlass.ok(
            "run", "--key", "k", "--", "sh", "-c", "touch began; while [ ! -e go ]; do sleep 0.02; done"
        )
        subprocess.run(
            ["sh", "-c", "while [ ! -e began ]; do sleep 0.02; done"], check=True, timeout=PATIENCE
        )
        process.send_signal(number)
        _read_until(process, "worker.draining")
        windlass.write("go", "")
        assert process.wait(PATIENCE) == 0
    assert windlass.jobs()[0]["state"] == "completed"


def test_a_second_signal_ends_it_at_once(windlass: Terminal) -> None:
    with _worker(windlass) as process:
        windlass.ok("run", "--", "sh", "-c", "touch began; sleep 1000")
        subprocess.run(
            ["sh", "-c", "while [ ! -e began ]; do sleep 0.02; done"], check=True, timeout=PATIENCE
        )
        process.terminate()
        _read_until(process, "worker.draining")
        process.terminate()
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_until_empty_ends_when_nothing_is_left_and_counts_what_waits(windlass: Terminal, shop: str) -> None:
    windlass.ok("enqueue", "add", '{"a": 1, "b": 2}', "--app", shop, "--key", "sum")
    windlass.ok("enqueue", "add", '{"a": 1}', "--delay", "1h")
    windlass.ok("enqueue", "poison", '{"n": 1}')
    answer = windlass.apart("worker", "start", shop, "--until-empty")
    assert (answer.code, answer.out) == (0, "nothing left to run; 1 scheduled, 0 retrying\n")
    assert windlass.ok("show", "sum", "--json").json["result"] == 3
    assert windlass.ok("status", "--json").json["counts"]["dead"] == 1
    answer = windlass.apart("worker", "start", shop, "--until-empty", "--json")
    kinds = ("due", "processing", "scheduled", "retrying", "waiting", "unreadable", "paused")
    assert answer.json == {"ended": "empty", **dict.fromkeys(kinds, 0), "scheduled": 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_until_empty_that_a_signal_ends_says_so_and_what_is_due(
    windlass: Terminal, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_WORKER_GRACE", "200ms")
    for _ in range(6):
        windlass.ok("run", "--", "sh", "-c", "touch began; sleep 1000")
    with windlass.start("worker", "start", "--until-empty", "--concurrency", "1") as process:
        until((windlass.folder / "began").exists, "the first job begins")
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    assert out == "stopped by a signal; 6 due, 0 processing, 0 scheduled, 0 retrying\n"


def test_until_empty_that_an_operator_drains_says_so_and_what_is_due(windlass: Terminal) -> None:
    for _ in range(2):
        windlass.ok("run", "--", "sh", "-c", "touch began; while [ ! -e go ]; do sleep 0.02; done")
    with windlass.start("worker", "start", "--until-empty", "--concurrency", "1") as process:
        until((windlass.folder / "began").exists, "the first job begins")
        [worker] = windlass.ok("worker", "health", "--json").json["workers"]
        windlass.ok("worker", "drain", worker["id"])
        _read_until(process, "worker.draining")
        windlass.write("go", "")
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert out == "stopped by an operator; 1 due, 0 processing, 0 scheduled, 0 retrying\n"


@pytest.mark.parametrize("more", [[], ["--count", "2"]])
def test_a_worker_that_is_given_a_server_says_what_it_needs(windlass: Terminal, more: list[str]) -> None:
    answer = windlass("worker", "start", "--shell", "--db", "http://127.0.0.1:1", *more)
    assert answer.code == 1
    assert "a worker needs the store itself, and http://127.0.0.1:1 is a server" in answer.err


def test_a_closed_terminal_hangs_up_more_than_once_and_is_a_gentle_stop(windlass: Terminal) -> None:
    with _worker(windlass) as process:
        windlass.ok("run", "--", "sh", "-c", "touch began; while [ ! -e go ]; do sleep 0.02; done")
        until((windlass.folder / "began").exists, "the job begins")
        process.send_signal(signal.SIGHUP)
        _read_until(process, "worker.draining")
        # The shell, the kernel, and then the manager of the session.
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            process.send_signal(number)
        windlass.write("go", "")
        assert process.wait(PATIENCE) == 0
    [job] = windlass.jobs()
    assert (job["state"], job["attempts"]) == ("completed", 1)


@pytest.mark.parametrize(
    "command", [["worker", "start", "--count", "2"], ["up", "--no-server"], ["serve", "--port", "0"]]
)
def test_a_hangup_ends_what_is_started_and_one_that_was_ignored_does_not(
    windlass: Terminal, command: list[str]
) -> None:
    words = {"worker": "worker.started", "up": "worker.started", "serve": "serves "}[command[0]]
    with windlass.start(*command) as process:
        try:
            _read_until(process, words)
            process.send_signal(signal.SIGHUP)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with windlass.start(*command, preexec_fn=ignore) as process:
        try:
            _read_until(process, words)
            process.send_signal(signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_a_worker_serves_only_the_types_that_it_is_told(windlass: Terminal, shop: str) -> None:
    windlass.ok("enqueue", "add", '{"a": 1}', "--app", shop)
    windlass.ok("run", "--", "true")
    assert windlass.apart("worker", "start", shop, "--until-empty", "--types", "ad*").code == 0
    assert {job["type"]: job["state"] for job in windlass.jobs()} == {"add": "completed", "shell": "pending"}
    assert windlass.apart("worker", "start", shop, "--until-empty", "--no-shell").code == 0
    assert windlass.apart("worker", "start", shop, "--until-empty", "--types", "shell").code == 0
    assert {job["state"] for job in windlass.jobs()} == {"completed"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--no-shell"], "there is nothing to serve: name an APP, or say --shell for shell jobs"),
        (["--types", "nope"], "types must be patterns that match a registered type"),
        (["--concurrency", "0"], "worker.concurrency (--concurrency) must be between 1 and"),
        (["--concurrency", "many"], "'many' is not a valid integer"),
        (["nowhere:queue"], "there is no module 'nowhere'"),
        (["--count", "0"], "0 is not in the range"),
        (["--pool", "email"], "NAME=TYPES:SLOTS"),
        (["--probe", "nowhere"], "--probe must be PORT or HOST:PORT"),
        (["--memory", "lots"], "worker.memory (--memory) must be a size"),
    ],
)
def test_a_worker_that_cannot_work_is_not_started(windlass: Terminal, args: list[str], words: str) -> None:
    answer = windlass.apart("worker", "start", *args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err


def test_a_drained_worker_finishes_and_exits(windlass: Terminal) -> None:
    with _worker(windlass) as process:
        [seen] = windlass.ok("worker", "health", "--json").json["workers"]
        unknown = windlass("worker", "drain", "nobody")
        assert (unknown.code, "no worker has the id 'nobody'" in unknown.err) == (1, True)
        windlass.ok("worker", "drain", seen["id"][:-2])
        assert process.wait(PATIENCE) == 0


def test_following_a_command_shows_its_output_and_its_end(windlass: Terminal) -> None:
    with _worker(windlass):
        answer = windlass("run", "--wait", "--", "sh", "-c", "echo out; echo err >&2")
    assert answer == (0, "out\n", "err\n")


def test_following_a_command_that_fails_tells_every_attempt(windlass: Terminal) -> None:
    _at_once(windlass)
    with _worker(windlass):
        answer = windlass(
            "run", "--wait", "--max-attempts", "2", "--", "sh", "-c", "echo hi; echo bad >&2; exit 3"
        )
    assert (answer.code, answer.out) == (1, "hi\n")
    first, second, last, end = answer.err.splitlines()
    assert first.startswith("windlass: attempt 1 of 2: ")
    assert "exit code 3" in first
    assert second.startswith("windlass: attempt 2 of 2: ")
    assert last == "bad"
    assert "is dead after 2 attempts; windlass show " in end
    [job] = windlass.jobs()
    assert [attempt["output"]["exit_code"] for attempt in job["history"]] == [3, 3]
    assert job["history"][0]["output"]["stderr"] == "bad\n"


def test_what_an_operator_has_set_holds_for_the_next_job(windlass: Terminal) -> None:
    windlass.ok("config", "set", "shell.timeout", "200ms")
    windlass.ok("config", "set", "shell.max_attempts", "1")
    windlass.ok("run", "--", "sleep", "1000")
    assert windlass.apart("worker", "start", "--until-empty").code == 0
    [job] = windlass.jobs()
    assert (job["state"], job["max_attempts"], job["error"]["reason"]) == ("dead", 1, "timeout")


def test_leaving_while_following_leaves_the_job(windlass: Terminal) -> None:
    with windlass.start("run", "--wait", "--key", "k", "--", "true") as process:
        _read_until(process, "no worker is running: start one with windlass worker start")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.strip()) == (130, "windlass: interrupted")
    assert windlass.jobs()[0]["state"] == "pending"


def test_the_log_tells_events_and_never_payloads(windlass: Terminal) -> None:
    _at_once(windlass)
    windlass.ok("run", "--max-attempts", "2", "--", "sh", "-c", ": s3cret; exit 3")
    answer = windlass.apart("worker", "start", "--until-empty", "--log-json")
    events = [json.loads(line) for line in answer.err.splitlines()]
    assert [event["event"] for event in events if event["event"].startswith("worker.")] == [
        "worker.started",
        "worker.draining",
        "worker.stopped",
    ]
    [dead] = [event for event in events if event.get("outcome") == "dead"]
    assert (dead["type"], dead["attempt"], dead["level"]) == ("shell", 2, "warning")
    assert "s3cret" not in answer.err


def test_up_runs_the_demo_until_it_is_interrupted(windlass: Terminal) -> None:
    with windlass.start("up") as process:
        try:
            said = _read_until(process, "queue.counts")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "No app was named: a demo producer enqueues a job every few seconds." in said
    assert any(job["type"].startswith("demo.") for job in windlass.jobs())
    assert not any(
        worker["alive"] for worker in windlass("worker", "health", "--json", "--all").json["workers"]
    )


def test_up_serves_the_http_api_and_says_where(windlass: Terminal, shop: str) -> None:
    with windlass.start("up", shop, "--port", "0") as process:
        try:
            said = _read_until(process, "worker.started")
            [url] = re.findall(r"The HTTP API is at (\S+/api/v1), and described at \S+/docs", said)
            with httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False) as api:
                job = api.post("/jobs", json={"type": "add", "payload": {"a": 1, "b": 2}}).json()
                assert api.get(f"/jobs/{job['id']}?wait=60s").json()["result"] == 3
                # Whoever listens on does not hold up the end.
                with api.stream("GET", "/stream") as stream:
                    assert next(stream.iter_lines())
                    process.terminate()
                    assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_up_goes_on_without_a_server_where_its_packages_are_missing(windlass: Terminal, shop: str) -> None:
    windlass.write("uvicorn.py", "raise ModuleNotFoundError('no uvicorn here', name='uvicorn')")
    note = "There is no HTTP API: the server needs packages that are not installed: pip install"
    for flags, told in (([], True), (["--no-server"], False)):
        with windlass.start("up", shop, *flags) as process:
            try:
                said = _read_until(process, "worker.started")
                process.terminate()
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
        assert (note in said) is told
        assert "The HTTP API is at" not in said
    asked = windlass.apart("up", shop, "--port", "0")
    assert (asked.code, "pip install 'windlass[server]'" in asked.err) == (1, True)


def test_up_serves_elsewhere_where_its_usual_port_is_taken(windlass: Terminal) -> None:
    with socket.socket() as taken, Queue(f"sqlite:///{windlass.folder / 'jobs.db'}") as queue:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server, url = serve.serve_beside(queue, ServerConfig(port=port), fixed=False)
        stop = serve.run_beside(server, threading.Event())
        try:
            assert not url.endswith(f":{port}")
            with httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False) as api:
                assert api.get("/health").json()["ok"]
        finally:
            stop()


def test_a_port_that_is_named_for_up_must_be_free(windlass: Terminal, shop: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = windlass.apart("up", shop, "--port", str(taken.getsockname()[1]))
    assert (answer.code, "server.port (--port) must be an address that is free" in answer.err) == (2, True)
    assert windlass("up", shop, "--port", "8080", "--no-server").code == 2


def test_up_runs_the_jobs_of_an_app(windlass: Terminal, shop: str) -> None:
    windlass.ok("enqueue", "add", '{"a": 1}', "--app", shop)
    with windlass.start("up", shop) as process:
        try:
            said = _read_until(process, "completed=1")
            process.terminate()
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "demo" not in said
    assert windlass.jobs()[0]["state"] == "completed"


@pytest.mark.parametrize(("flags", "told"), [([], False), (["-v"], True)])
def test_jobs_that_succeed_are_told_of_when_asked_for(
    windlass: Terminal, flags: list[str], *, told: bool
) -> None:
    windlass.ok("run", "--", "true")
    answer = windlass.apart("worker", "start", "--until-empty", *flags)
    assert ("job.completed" in answer.err) is told


def test_a_command_in_a_folder_that_is_not_there_is_given_up_at_once(windlass: Terminal) -> None:
    windlass.ok("run", "--cwd", "nowhere", "--", "true")
    windlass.apart("worker", "start", "--until-empty")
    [job] = windlass.jobs()
    assert (job["state"], job["attempts"]) == ("dead", 1)
    assert "no such folder to run the command in: nowhere" in job["error"]["message"]
    assert "worker/shell.py" not in windlass.ok("show", job["id"]).out


def test_a_failed_command_is_named_by_a_short_class(windlass: Terminal) -> None:
    windlass.ok("run", "--max-attempts", "1", "--", "false")
    windlass.apart("worker", "start", "--until-empty")
    assert windlass.jobs()[0]["error"]["class"] == "CommandFailed"
