"""How do jobs look from a terminal?"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from tests.surface.conftest import Terminal
from windlass import Queue, connect
from windlass.job import Error, Output, Reason
from windlass.outcome import Again, Dead, Done, Outcome
from windlass.store.engine import Settlement, Want

JOB_FIELDS = [
    "id", "seq", "type", "state", "view", "priority", "payload", "key", "tenant", "attempts", "max_attempts",
    "created_at", "run_at", "started_at", "finished_at", "worker", "error",
]  # fmt: skip

EVIL = "\x1b[31mred\x1b[2J \u202e\nsecond line"
BOOM = Error(
    Reason.EXCEPTION,
    "ValueError",
    f"boom {EVIL}",
    "Traceback (most recent call last):\n  x\nValueError: boom",
)


def _attempt(outcome: Outcome) -> None:
    """Let somebody run the next shell job to this end."""
    opened = connect.open("windlass.db")
    want = Want(worker="w-1", types={"shell": 1}, limit=1, lease=timedelta(minutes=1))
    [lease] = opened.store.claim(want).leases
    opened.store.settle([Settlement(lease, outcome, timedelta(seconds=2))])
    opened.close()


def test_a_list_shows_newest_first_with_views_instead_of_pending(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "first", "--", "true")
    windlass.ok("run", "--key", "later", "--delay", "3h", "--", "true")
    head, later, first = windlass.ok("list").out.splitlines()
    assert head.split() == ["ID", "TYPE", "STATE", "PRI", "ATTEMPTS", "WHEN", "KEY", "/", "ERROR"]
    assert later.split()[1:] == ["shell", "scheduled", "5", "0/5", "in", "3h", "later"]
    assert first.split()[1:6] == ["shell", "due", "5", "0/5", "waits"]


def test_json_has_exactly_the_designed_shape(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "k", "--tenant", "t", "--", "true")
    _attempt(Again(timedelta(hours=1), BOOM))
    answer = windlass.ok("list", "--json").json
    assert list(answer) == ["jobs", "next"]
    [job] = answer["jobs"]
    assert list(job)[: len(JOB_FIELDS)] == JOB_FIELDS
    assert (job["state"], job["view"], job["tenant"]) == ("pending", "retrying", "t")
    assert job["error"] == {"reason": "exception", "class": "ValueError", "message": BOOM.message}
    assert job["created_at"].endswith("Z")
    assert job["payload"] == {"command": ["true"]}
    [attempt] = job["history"]
    assert (attempt["number"], attempt["outcome"], attempt["worker"]) == (1, "retry", "w-1")
    assert attempt["error"]["traceback"] == BOOM.traceback
    ties: dict[str, object] = {"progress": None, "batch": None, "waits_for": []}
    assert windlass.ok("show", "k", "--json").json == job | ties


def test_pages_follow_each_other_without_gap_or_repeat(windlass: Terminal) -> None:
    for number in range(5):
        windlass.ok("run", "--key", str(number), "--", "true")
    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = windlass.ok("list", "--limit", "2", "--json", *cursor).json
        seen += [job["key"] for job in page["jobs"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert seen == ["4", "3", "2", "1", "0"]
    first = windlass.ok("list", "--limit", "2")
    assert first.err.startswith("There are more: --cursor ")


@pytest.mark.parametrize(
    ("args", "keys"),
    [
        (["--state", "scheduled"], ["later"]),
        (["--state", "due"], ["plain"]),
        (["--state", "dead"], ["dead"]),
        (["--state", "pending", "--state", "dead"], ["dead", "later", "plain"]),
        (["--type", "nope"], []),
        (["--tenant", "t"], ["plain"]),
        (["--key", "plain"], ["plain"]),
        (["--error", "boom"], ["dead"]),
        (["--older-than", "1h"], []),
        (["--where", 'payload.env.NUMBER="1"'], ["plain"]),
        (["--where", "payload.env.NUMBER=1"], []),
        (["--where", "payload.cwd=here"], ["later"]),
        (["--where", "payload.cwd=here", "--state", "dead"], []),
    ],
)
def test_every_filter_finds_what_it_says(windlass: Terminal, args: list[str], keys: list[str]) -> None:
    windlass.ok("enqueue", '{"id": "plain", "command": "x", "tenant": "t", "env": {"NUMBER": "1"}}')
    windlass.ok("enqueue", '{"id": "later", "command": "x", "cwd": "here", "delay": "3h"}')
    windlass.ok("enqueue", '{"id": "dead", "command": "x", "priority": 10}')
    _attempt(Dead(BOOM))
    assert [job["key"] for job in windlass.jobs(*args)] == keys


def test_show_tells_the_whole_story(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "k", "--max-attempts", "2", "--", "sh", "-c", "exit 3")
    output = Output(exit_code=3, stdout="hi\n", stderr="bad\n")
    _attempt(Again(timedelta(0), Error(Reason.EXCEPTION, "CommandFailed", "exit code 3: bad"), output))
    _attempt(Dead(BOOM, output=output))
    windlass.ok("replay", "k", "--payload", '{"command": "true"}', "--why", "typo")
    story = windlass.ok("show", "k").out
    for words in [
        "pending (due)", "attempts    0 of 2; replayed once", '{"command": "true"}',
        "#1  retry after ", "by w-1", "CommandFailed: exit code 3: bad",
        "exit code 3\n", "stdout | hi", "stderr | bad", "#2  dead after ",
        "Traceback (most recent call last):", "replay by ", ": typo",
        'payload before: {"command": ["sh", "-c", "exit 3"]}',
    ]:  # fmt: skip
        assert words in story


def test_a_result_is_shown(windlass: Terminal) -> None:
    windlass.ok("run", "--key", "k", "--", "true")
    _attempt(Done(b'{"rows": 3}'))
    assert 'Result\n  {"rows": 3}\n' in windlass.ok("show", "k").out
    assert windlass.ok("show", "k", "--json").json["result"] == {"rows": 3}


def test_a_job_that_waits_for_others_says_for_whom(windlass: Terminal) -> None:
    with Queue("sqlite:///windlass.db") as queue:

        @queue.job
        def load(row: int) -> None: ...

        first = load.options(key="first").enqueue(1)
        load.options(key="second", depends_on=[first]).enqueue(2)
    story = windlass.ok("show", "second").out
    assert "pending (waiting)" in story
    assert f"waits for   {first.id}" in story
    assert "runs at" not in story
    assert windlass.ok("show", "second", "--json").json["waits_for"] == [first.id]
    assert " waiting " in windlass.ok("list", "--state", "waiting").out
    assert windlass.ok("status", "--json").json["counts"]["waiting"] == 1


def test_a_batch_shows_how_far_it_is(windlass: Terminal) -> None:
    queue = Queue("sqlite:///windlass.db", shell=True)  # noqa: S604 - somebody else runs it
    with queue, queue.batch("import") as batch:
        batch.add(*(queue.draft("shell", {"command": "true"}) for _ in range(3)))
        batch.then(queue.draft("shell", {"command": "echo done"}))
    _attempt(Dead(BOOM))
    _attempt(Done())
    told = windlass.ok("batch", batch.id).out
    for words in (
        "import  2 of 3 ended",
        "pending     1",
        "dead        1",
        "completed   1",
        "when all have ended",
    ):
        assert words in told
    found = windlass.ok("batch", batch.id, "--json").json
    assert (found["total"], found["ended"], found["finished_at"]) == (3, 2, None)
    assert found["states"] == {"completed": 1, "dead": 1, "pending": 1}
    [job, *_] = windlass.jobs("--state", "dead")
    assert f"batch       {batch.id}" in windlass.ok("show", job["id"]).out
    refused = windlass("batch", "nonsense")
    assert refused == (1, "", "windlass: no batch has the id 'nonsense'\n")


def test_what_jobs_say_cannot_steer_the_terminal(windlass: Terminal) -> None:
    windlass.ok("run", "--key", f"k{EVIL}", "--", EVIL)
    _attempt(Dead(BOOM, output=Output(stdout=EVIL, stderr=EVIL)))
    for args in (["list"], ["show", f"k{EVIL}"], ["dlq", "list"]):
        shown = windlass.ok(*args).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\\x1b[31mred" in shown


def test_neither_can_what_the_status_quotes_of_them(windlass: Terminal) -> None:
    for _ in range(3):
        windlass.ok("run", "--", "true")
        _attempt(Dead(Error(Reason.EXCEPTION, "ValueError", EVIL)))
    windlass.ok("pause", "shell", "--why", EVIL)
    windlass.ok("breaker", "shell", "open", "--why", EVIL)
    for args in (["status"], ["breaker", "shell"], ["metrics"], ["signals"], ["audit"]):
        shown = windlass.ok(*args).out
        assert "\x1b" not in shown, args
        assert "\u202e" not in shown, args
    windlass.ok("resume", "shell")
    windlass.ok("breaker", "shell", "auto")
    shown = windlass.ok("status").out
    assert "keep failing (ValueError: \\x1b[31mred" in shown


def test_status_counts_by_type_and_says_what_is_wrong(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    windlass.ok("run", "--delay", "1h", "--", "true")
    answer = windlass.ok("status")
    assert "sqlite:///windlass.db: no worker is running" in answer.out
    assert re.search(
        r"\nNo worker is running: 1 job waits, for \w+: windlass worker start --shell\n", answer.out
    )
    _attempt(Dead(BOOM))
    assert "! 1 dead letter of shell: windlass dlq list --type shell" in windlass.ok("status").out
    seen = windlass.ok("status", "--json").json
    assert (seen["counts"]["dead"], seen["counts"]["scheduled"], seen["counts"]["due"]) == (1, 1, 0)
    assert [each["name"] for each in seen["types"]] == ["shell"]


def test_types_show_what_holds_with_what_operators_have_set(windlass: Terminal) -> None:
    windlass.ok("run", "--", "true")
    windlass.ok("config", "set", "shell.timeout", "10m")
    assert windlass.ok("types").out.splitlines()[1].split()[:8] == [
        "shell",
        "1",
        "0",
        "1",
        "0",
        "shell",
        "10m",
        "5",
    ]
    [shell] = windlass.ok("types", "--json").json["types"]
    assert (shell["options"]["timeout"], shell["effective"]["timeout"]) == (300.0, 600.0)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["show", "nix"], 1, "no job has the id or key 'nix'"),
        (["list", "--limit", "0"], 2, "limit must be between 1 and 1000, got 0"),
        (["list", "--limit", "1001"], 2, "limit must be between 1 and 1000, got 1001"),
        (["list", "--limit", "many"], 2, "'many' is not a valid integer"),
        (["list", "--cursor", "!"], 2, "cursor must be the `next` of an earlier page"),
        (["list", "--state", "failed"], 2, "'failed' is not one of 'pending'"),
        (["list", "--state", "due", "--state", "dead"], 2, "--state must be several states, or one of due"),
        (["list", "--where", "a=1"], 2, "'a=1' is not a condition such as payload.user.id=42"),
        (["list", "--where", "payload.a"], 2, "is not a condition"),
        (["list", "--where", "payload.a=[1]"], 2, "only plain values can be compared"),
        (["list", "--older-than", "old"], 2, "'old' is not a duration"),
        (["list", "--nope"], 2, "No such option"),
        (["list", "--key", "\udcff"], 2, "must be a text without NUL or lone surrogates"),
        (["list", "--tenant", "\udcff"], 2, "must be a text without NUL or lone surrogates"),
        (["list", "--error", "\udcff"], 2, "must be a text without NUL or lone surrogates"),
        (["list", "--where", "payload.a=\udcff"], 2, "must be a text without NUL or lone surrogates"),
        (["nope"], 2, "No such command 'nope'"),
        (["dlq", "list", "--state", "pending"], 2, "No such option"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line(
    windlass: Terminal, args: list[str], code: int, words: str
) -> None:
    windlass.ok("run", "--", "true")
    answer = windlass(*args)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert answer.err.startswith("windlass: ")
    assert words in answer.err


@pytest.mark.parametrize(
    "command", [["status"], ["list"], ["show", "x"], ["types"], ["db", "status"], ["cancel", "x"]]
)
def test_a_missing_store_is_told_and_not_made(windlass: Terminal, command: list[str]) -> None:
    answer = windlass(*command)
    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert "there is no store at " in answer.err
    assert list(windlass.folder.iterdir()) == []


_LOOKS = [["list"], ["status"], ["doctor"], ["db", "check"], ["db", "status"], ["config", "validate"]]


@pytest.mark.parametrize("command", _LOOKS)
def test_looking_at_an_empty_file_beside_a_log_changes_nothing(
    windlass: Terminal, command: list[str]
) -> None:
    files = {"jobs.db": "", "jobs.db-wal": "accepted jobs"}
    for name, text in files.items():
        windlass.write(name, text)
    answer = windlass(*command, "--db", "jobs.db")
    assert answer.code != 0
    assert "jobs.db is damaged: it is empty" in answer.err + answer.out
    assert "db migrate" not in answer.err + answer.out
    assert {each.name: each.read_text() for each in windlass.folder.iterdir()} == files


@pytest.mark.parametrize("command", _LOOKS)
def test_looking_does_not_make_a_store_of_an_empty_file(windlass: Terminal, command: list[str]) -> None:
    windlass.write("jobs.db", "")
    answer = windlass(*command, "--db", "jobs.db")
    assert "there is no store at " in answer.err + answer.out
    assert {each.name: each.read_text() for each in windlass.folder.iterdir()} == {"jobs.db": ""}


@pytest.mark.parametrize("command", _LOOKS)
def test_looking_leaves_nothing_beside_another_database(windlass: Terminal, command: list[str]) -> None:
    with closing(sqlite3.connect(windlass.folder / "other.db")) as other:
        other.execute("create table precious (a)")
    before = (windlass.folder / "other.db").read_bytes()
    answer = windlass(*command, "--db", "other.db")
    assert answer.code != 0
    assert "without Windlass tables" in answer.err + answer.out
    assert {each.name: each.read_bytes() for each in windlass.folder.iterdir()} == {"other.db": before}


@pytest.mark.parametrize("command", [["status"], ["list"], ["doctor"], ["cancel", "x"]])
def test_looking_does_not_create_the_store_of_an_application(windlass: Terminal, command: list[str]) -> None:
    windlass.write("app.py", "from windlass import Queue\nqueue = Queue('sqlite:///jobs.db')\n")
    answer = windlass("--app", "app:queue", *command)
    assert answer.code == 3
    assert "there is no store at " in answer.err + answer.out
    assert not (windlass.folder / "jobs.db").exists()


def test_what_is_not_a_store_is_refused_and_left_as_it_is(windlass: Terminal) -> None:
    text = windlass.write("text.db", "to whom it may concern: " * 50)
    (windlass.folder / "folder.db").mkdir()
    for args in (["status"], ["run", "--", "true"]):
        refused = windlass("--db", "text.db", *args)
        assert (refused.code, refused.err.count("\n")) == (3, 1)
        assert "text.db is not a SQLite database" in refused.err
        refused = (
            windlass(*args, "--db", "folder.db")
            if args == ["status"]
            else windlass("--db", "folder.db", *args)
        )
        assert refused.code == 3
        assert "it is a directory" in refused.err
    assert text.read_text() == "to whom it may concern: " * 50


@pytest.mark.parametrize(
    ("url", "code"), [("postgresql://ann:s3cret@127.0.0.1:1/jobs", 3), ("mysql://ann:s3cret@db/jobs", 2)]
)
def test_a_password_in_a_url_is_never_repeated(windlass: Terminal, url: str, code: int) -> None:
    answer = windlass("status", "--db", url)
    assert answer.code == code
    assert "s3cret" not in answer.err + answer.out


def test_a_reader_that_has_seen_enough_gets_no_complaint(windlass: Terminal) -> None:
    windlass.write("jobs.ndjson", '{"command": "x"}\n' * 1000)
    windlass.ok("enqueue", "--file", "jobs.ndjson")
    with windlass.start("list", "--limit", "1000", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, "")
