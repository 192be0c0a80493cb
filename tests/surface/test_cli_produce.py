"""How do jobs get in from a terminal?"""

from __future__ import annotations

import json

import pytest

from tests.surface.conftest import Terminal


def test_a_command_in_words_becomes_a_shell_job(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "hi", "--max-attempts", "3", "--timeout", "2m", "--", "echo", "--json", "hi")
    [job] = windlass.jobs()
    assert (job["type"], job["key"], job["max_attempts"]) == ("shell", "hi", 3)
    assert job["payload"] == {"command": ["echo", "--json", "hi"], "timeout": 120.0}


def test_one_json_object_may_stand_for_a_command(windlass: Terminal) -> None:
    windlass.ok("enqueue", '{"id": "job1",\n "command": "echo hi",\n "priority": 8, "max_attempts": 2}')
    [job] = windlass.jobs()
    assert (job["type"], job["key"], job["priority"], job["max_attempts"]) == ("shell", "job1", 8, 2)
    assert job["payload"] == {"command": "echo hi"}


def test_one_json_object_may_stand_for_a_job_of_any_type(windlass: Terminal, shop: str) -> None:
    windlass.ok(
        "enqueue",
        "--app",
        shop,
        '{"type": "add", "payload": {"a": 1}, "run_at": "2090-01-01T00:00:00+02:00"}',
    )
    [job] = windlass.jobs()
    assert (job["type"], job["view"], job["run_at"]) == ("add", "scheduled", "2089-12-31T22:00:00Z")


def test_a_type_with_its_payload_and_every_option(windlass: Terminal, shop: str) -> None:
    answer = windlass.ok(
        "enqueue", "add", '{"a": 1}', "--app", shop, "--priority", "9", "--delay", "1h", "--key", "k",
        "--tenant", "t", "--max-attempts", "4", "--payload-ref", "s3://b/1", "--json",
    )  # fmt: skip
    job = answer.json
    assert job["created"] is True
    assert (job["priority"], job["key"], job["tenant"], job["max_attempts"]) == (9, "k", "t", 4)
    assert (job["state"], job["view"]) == ("pending", "scheduled")
    assert job["payload_ref"] == "s3://b/1"
    assert "reference   s3://b/1" in windlass.ok("show", "k").out


def test_once_registered_a_type_is_known_without_its_code(windlass: Terminal, shop: str) -> None:
    windlass.ok("enqueue", "add", '{"a": 1}', "--app", shop)
    windlass.ok("enqueue", "add", '{"a": 2}')
    refused = windlass("enqueue", "add", '{"a": "two"}')
    assert (refused.code, refused.err) == (1, 'windlass: add: payload.a must be an integer, got "two"\n')


def test_the_same_key_twice_is_one_job_and_another_payload_is_refused(windlass: Terminal) -> None:
    first = windlass.ok("run", "--key", "k", "--json", "--", "true").json
    again = windlass.ok("run", "--key", "k", "--json", "--", "true").json
    assert (again["id"], again["created"]) == (first["id"], False)
    other = windlass("run", "--key", "k", "--", "false")
    assert other.code == 1
    assert f"key 'k' belongs to job {first['id']}" in other.err
    assert len(windlass.jobs()) == 1


def test_a_file_of_jobs_is_taken_in_order(windlass: Terminal) -> None:
    lines = [json.dumps({"command": f"echo {number}", "priority": number % 3}) for number in range(1500)]
    windlass.write("jobs.ndjson", "\n\n".join(lines))
    answer = windlass.ok("enqueue", "--file", "jobs.ndjson", "--json")
    assert answer.json == {"enqueued": 1500, "existing": 0}
    jobs = windlass.jobs("--limit", "1000")
    assert [job["payload"]["command"] for job in jobs] == [f"echo {n}" for n in range(1499, 499, -1)]


def test_jobs_of_a_file_that_exist_already_are_counted_apart(windlass: Terminal) -> None:
    windlass.write("jobs.ndjson", '{"id": "a", "command": "x"}\n{"id": "b", "command": "x"}\n')
    windlass.ok("enqueue", '{"id": "a", "command": "x"}')
    assert (
        windlass.ok("enqueue", "--file", "jobs.ndjson").out
        == "1 job enqueued, 1 existed already by their keys\n"
    )


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        ("{oops}", 2, "line 1203: job must be valid JSON"),
        ('{"command": "x", "prio": 3}', 2, "line 1203: each field of job must be one of command, "),
        (
            '{"command": "x", "priority": 99}',
            2,
            "line 1203: priority must be a whole number between 0 and 10",
        ),
        ('{"type": "nope", "payload": {}}', 1, "line 1203: unknown job type 'nope'"),
        ('{"command": 3}', 1, "line 1203: shell: payload.command must be"),
        ('["command"]', 2, "line 1203: job must be a JSON object"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_file_is_stored(
    windlass: Terminal, bad: str, code: int, words: str
) -> None:
    windlass.write("jobs.ndjson", '{"command": "x"}\n' * 1201 + "\n" + bad + "\n" + '{"command": "x"}\n')
    answer = windlass("enqueue", "--file", "jobs.ndjson")
    assert answer.code == code
    assert answer.err.startswith(f"windlass: {words}")
    assert answer.err.count("\n") == 1
    assert windlass.jobs() == []


def test_a_stream_with_a_bad_line_tells_what_of_it_is_stored(windlass: Terminal) -> None:
    answer = windlass.apart("enqueue", "--file", "-", text='{"command": "x"}\n' * 1500 + "oops\n")
    assert answer.code == 2
    assert "line 1501: job must be valid JSON" in answer.err
    assert "1,000 jobs up to line 1000 are stored, the rest is not" in answer.err
    assert len(windlass.jobs("--limit", "1000")) == 1000


def test_a_key_that_a_file_uses_for_two_different_jobs_is_named_with_its_line(windlass: Terminal) -> None:
    windlass.write("jobs.ndjson", '{"id": "a", "command": "x"}\n{"id": "b", "command": "x"}\n')
    windlass.ok("enqueue", '{"id": "b", "command": "other"}')
    answer = windlass("enqueue", "--file", "jobs.ndjson")
    assert answer.code == 1
    assert answer.err.startswith("windlass: line 2: key 'b' belongs to")
    assert [job["key"] for job in windlass.jobs()] == ["b"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["enqueue"], 2, "say which job"),
        (
            ["enqueue", "nope", "{}"],
            1,
            "unknown job type 'nope'; registered types: shell; --app module:queue",
        ),
        (["enqueue", "Bad Name", "{}"], 2, "type must be a letter a-z"),
        (["enqueue", "shell", '{"command": "x"'], 2, "payload must be valid JSON (line 1 column 16"),
        (["enqueue", "shell", "[]"], 2, "payload must be a JSON object, got []"),
        (["enqueue", "shell", "{}"], 1, "shell: payload.command is missing"),
        (["enqueue", "shell", '{"command": "x", "extra": 1}'], 1, "payload.extra"),
        (
            ["enqueue", "shell", json.dumps({"command": "x" * 66_000})],
            1,
            "payload must be at most 65536 bytes",
        ),
        (["enqueue", "shell", '{"command": "x"}', "--priority", "11"], 2, "between 0 and 10, got 11"),
        (["enqueue", "shell", '{"command": "x"}', "--max-attempts", "21"], 2, "between 1 and 20, got 21"),
        (
            ["enqueue", "shell", '{"command": "x"}', "--delay", "soon"],
            2,
            "'soon' is not a duration such as 30s",
        ),
        (["enqueue", "shell", '{"command": "x"}', "--at", "noon"], 2, "'noon' is not a time in ISO 8601"),
        (
            ["enqueue", "shell", '{"command": "x"}', "--delay", "1", "--at", "2090-01-01"],
            2,
            "--at cannot be combined with --delay",
        ),
        (["enqueue", "shell", '{"command": "x"}', "--key", ""], 2, "key must be a text of 1 to"),
        (["enqueue", '{"command": "x"}', "{}"], 2, "a JSON object stands for the whole job"),
        (
            ["enqueue", '{"id": "a", "key": "b", "command": "x"}'],
            2,
            "key must be left out where there is an id",
        ),
        (["enqueue", '{"payload": {}}'], 2, 'job must be an object with a "type"'),
        (["enqueue", '{"type": "shell", "payload": []}'], 2, "payload of job must be a JSON object"),
        (["enqueue", '{"command": "x", "run_at": 5}'], 2, "must be a time in ISO 8601"),
        (["enqueue", "--rate", "5", "shell"], 2, "--rate is for --file"),
        (["enqueue", "--file", "jobs", "shell"], 2, "with --file the lines say it all"),
        (["enqueue", "--file", "jobs", "--priority", "3"], 2, "with --file the lines say it all"),
        (["enqueue", "--file", "missing"], 2, "--file must be a file that can be read (No such file"),
        (["enqueue", "--file", "x", "--rate", "0"], 2, "'0' is not a rate"),
        (["run"], 2, "Missing argument 'COMMAND"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_stores_nothing(
    windlass: Terminal, args: list[str], code: int, words: str
) -> None:
    windlass.ok("config", "set", "timeout", "5m")
    answer = windlass(*args)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("windlass: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert windlass.jobs() == []


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("nowhere:queue", "there is no module 'nowhere' in this folder or installed"),
        ("shop:q", "module 'shop' has no 'q'; it has shop:queue"),
        ("shop:add", "'add' is not a Queue but of type JobType; it has shop:queue"),
        ("shop.py", "name it as module:queue"),
        ("broken", "ValueError: boom at import (broken.py, line 2)"),
        ("wrong", "SyntaxError"),
        ("leaves", "SystemExit: 3"),
        ("needs", "ModuleNotFoundError: No module named 'nowhere_else'"),
        ("two", "say which queue; it has two:one, two:other"),
        ("none", "say which queue; it has no Queue at all"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_told_in_one_line(
    windlass: Terminal, shop: str, app: str, words: str
) -> None:
    windlass.write("broken.py", "x = 1\nraise ValueError('boom\\nat import')\n")
    windlass.write("wrong.py", "def (:\n")
    windlass.write("leaves.py", "import sys\nsys.exit(3)\n")
    windlass.write("needs.py", "import nowhere_else\n")
    windlass.write("two.py", "from windlass import Queue\none, other = Queue(), Queue()\n")
    windlass.write("none.py", "")
    answer = windlass("enqueue", "add", '{"a": 1}', "--app", app)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith(f"windlass: cannot load app {app!r}: ")
    assert words in answer.err


def test_a_flag_reaches_an_app_that_leaves_its_store_open(windlass: Terminal, shop: str) -> None:
    windlass.ok("--db", "other.db", "enqueue", "add", '{"a": 1}', "--app", shop)
    assert len(windlass.jobs("--db", "other.db")) == 1
    assert not (windlass.folder / "windlass.db").exists()


def test_a_flag_against_an_app_that_names_its_store_is_refused(windlass: Terminal) -> None:
    windlass.write("fixed.py", "from windlass import Queue\nqueue = Queue('sqlite:///mine.db', shell=True)\n")
    answer = windlass("run", "--app", "fixed", "--db", "other.db", "--", "true")
    assert answer.code == 2
    assert "--db must be left out: app fixed names its own store, sqlite:///" in answer.err
    windlass.ok("run", "--app", "fixed", "--db", "mine.db", "--", "true")
    assert len(windlass.jobs("--db", "mine.db")) == 1


def test_a_taken_key_can_be_answered_with_its_job(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "k", "--", "true")
    refused = windlass("run", "--key", "k", "--", "false")
    assert (refused.code, "or --existing to be given that job" in refused.err) == (1, True)
    assert "on_conflict" not in refused.err
    [job] = windlass.jobs()
    answer = windlass.ok("run", "--key", "k", "--existing", "--json", "--", "false").json
    assert (answer["id"], answer["created"]) == (job["id"], False)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "--timeout", "0", "--", "true"], "--timeout must be more than 0"),
        (
            ["enqueue", '{"command": "x", "delay": 5, "run_at": "2030-01-01"}'],
            "run_at and delay exclude each other",
        ),
    ],
)
def test_a_wrong_wish_is_refused_in_the_words_of_the_command_line(
    windlass: Terminal, args: list[str], words: str
) -> None:
    answer = windlass(*args)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


def test_a_job_waits_for_others_by_id_or_key(windlass: Terminal, store_url: str) -> None:
    db = ("--db", store_url)
    first = windlass.ok(*db, "run", "--json", "--", "true").json["id"]
    windlass.ok(*db, "run", "--key", "second", "--max-attempts", "1", "--", "false")
    both = ("--depends-on", first, "--depends-on", "second")
    told = windlass.ok(*db, "run", "--key", "third", *both, "--", "true").out
    assert told.endswith("shell enqueued, waits for others\n")
    fourth = '{"id": "fourth", "command": "true", "depends_on": ["second"], "on_dead": "run"}'
    windlass.ok(*db, "enqueue", fourth)
    windlass.ok(*db, "worker", "start", "--shell", "--until-empty")
    views = {job["key"]: job["view"] or job["state"] for job in windlass.jobs(*db)}
    assert views == {None: "completed", "second": "dead", "third": "waiting", "fourth": "completed"}


def test_a_file_can_be_one_batch(windlass: Terminal, store_url: str) -> None:
    db = ("--db", store_url)
    lines = [f'{{"id": "job{n}", "command": "test {n} != 7", "max_attempts": 1}}' for n in range(20)]
    path = windlass.write("jobs.ndjson", "\n".join(lines))
    answer = windlass.ok(*db, "enqueue", "--file", str(path), "--batch", "catalogue", "--json").json
    assert (answer["enqueued"], answer["existing"]) == (20, 0)
    windlass.ok(*db, "worker", "start", "--shell", "--until-empty")
    batch = windlass.ok(*db, "batch", answer["batch"], "--json").json
    assert (batch["name"], batch["states"]) == ("catalogue", {"completed": 19, "dead": 1})

    windlass.write("jobs.ndjson", '{"command": "true"}\n{"id": "job1", "command": "something else"}')
    refused = windlass(*db, "enqueue", "--file", str(path), "--batch", "catalogue")
    assert (refused.code, refused.err[:32]) == (1, "windlass: line 2: key 'job1' bel")
    assert len(windlass.jobs(*db)) == 20


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "--on-dead", "run", "--", "true"], "--on-dead is for --depends-on"),
        (["run", "--depends-on", "a", "--on-dead", "stop", "--", "true"], "'wait', 'cancel', 'run'"),
        (["enqueue", '{"command": "x", "depends_on": "a"}'], "depends_on must be a list"),
        (["enqueue", "add", "--batch", "b"], "--batch is for --file"),
        (
            ["enqueue", "--file", "-", "--batch", "b", "--rate", "1/s"],
            "--rate cannot be combined with --batch",
        ),
    ],
)
def test_dependencies_and_batches_that_make_no_sense_are_refused(
    windlass: Terminal, args: list[str], words: str
) -> None:
    answer = windlass(*args)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


def test_a_job_that_nobody_knows_cannot_be_waited_for(windlass: Terminal) -> None:
    answer = windlass("run", "--depends-on", "nobody", "--", "true")
    assert (answer.code, answer.err) == (1, "windlass: no job has the id or key 'nobody'\n")
    assert windlass.jobs() == []
