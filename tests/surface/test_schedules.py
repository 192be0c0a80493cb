"""How do schedules look to who writes code, and to who sits at a terminal?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE
from windlass import Context, InvalidPayload, InvalidValue, JobState, Queue, UnknownType
from windlass.testing import override

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


# --- in code ------------------------------------------------------------------------------------


def test_a_decorated_function_runs_at_its_times() -> None:
    queue = Queue()
    ran: list[datetime] = []

    @queue.job(cron="30 2 * * *", tz="Europe/Berlin")
    def nightly() -> None:
        ran.append(kit.now)

    with override(queue, start=START) as kit:
        kit.drain(within="4d")
    # The first night skips half past two; the moment of the skip is one o'clock, UTC.
    assert [f"{moment:%d %H:%M}" for moment in ran] == ["29 01:00", "30 00:30", "31 00:30", "01 00:30"]


def test_a_schedule_of_its_own_name_and_payload() -> None:
    queue = Queue()
    said: list[tuple[str, int]] = []

    @queue.job
    def report(ctx: Context, title: str, days: int = 1) -> None:
        said.append((title, days))
        assert ctx.job.key is not None
        assert ctx.job.key.startswith("schedule:report.")

    queue.schedule("report.daily", report, {"title": "day"}, cron="@daily")
    queue.schedule(
        "report.hourly", "report", {"title": "hour", "days": 0}, every="1h", priority=9, tenant="t"
    )
    with override(queue, start=START) as kit:
        kit.drain(within="12h")
        jobs = kit.jobs(report)
    assert said.count(("hour", 0)) == 12
    assert said.count(("day", 1)) == 1
    assert {(job.priority, job.tenant) for job in jobs} == {(9, "t"), (5, "")}


def test_time_that_was_advanced_is_caught_up_with_as_the_policy_says() -> None:
    queue = Queue()

    @queue.job(every="1h", catch_up="all", overlap="queue")
    def each() -> None: ...

    @queue.job(every="1h")
    def last() -> None: ...

    with override(queue, start=START) as kit:
        kit.drain()
        kit.advance("5h")
        kit.drain()
        assert len(kit.jobs(each, state="completed")) == 5
        assert len(kit.jobs(last, state="completed")) == 1


def test_a_job_that_fails_lets_the_next_be_skipped_until_it_has_ended() -> None:
    queue = Queue()

    @queue.job(every="1m", max_attempts=3)
    def flaky() -> None:
        raise ValueError("not today")

    with override(queue, start=START) as kit:
        kit.try_drain(within="90s")
        [job] = kit.jobs(flaky)
        assert job.state is JobState.PENDING
        kit.try_drain(within="3m")
        outcomes = [fire.outcome for fire in queue.store.fires("flaky")][::-1]
    assert outcomes[:2] == ["enqueued", "skipped"]
    assert "enqueued" in outcomes[2:]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cron": "0 3 * * *", "every": "1h"}, "give cron or every, one of the two"),
        ({"tz": "Europe/Berlin"}, "give cron or every, one of the two"),
        ({"cron": "often"}, "cron must be five fields"),
        ({"cron": "0 3 * * *", "tz": "Mars/Olympus"}, "tz must be the name of a time zone"),
        ({"every": "10ms"}, "every must be a duration between 1s and 366d"),
        ({"every": "1h", "catch_up": "all"}, 'catch_up must be given together with overlap="queue"'),
    ],
)
def test_a_decorator_refuses_what_is_wrong(options: Any, told: str) -> None:
    queue = Queue()
    with pytest.raises(InvalidValue, match=told):

        @queue.job(**options)
        def nightly() -> None: ...

    assert queue.registry.names() == ()


def test_a_function_that_needs_arguments_says_how_to_give_them() -> None:
    queue = Queue()
    with pytest.raises(InvalidValue, match=r"cron= needs a function .* queue.schedule\(name, function"):

        @queue.job(cron="0 3 * * *")
        def report(days: int) -> None: ...

    @queue.job(name="report.build")
    def build(days: int) -> None: ...

    with pytest.raises(InvalidPayload, match=r"payload.days"):
        queue.schedule("weekly", build, cron="@weekly")
    with pytest.raises(UnknownType):
        queue.schedule("weekly", "nothing", cron="@weekly")
    with pytest.raises(InvalidValue, match="schedule name"):
        queue.schedule("Weekly", build, {"days": 7}, cron="@weekly")
    with pytest.raises(InvalidValue, match="priority"):
        queue.schedule("weekly", build, {"days": 7}, cron="@weekly", priority=11)
    with pytest.raises(InvalidValue, match="a function of this queue"):
        queue.schedule("weekly", "shell", {"command": "true"}, cron="@weekly")
    queue.schedule("weekly", build, {"days": 7}, cron="@weekly")
    with pytest.raises(InvalidValue, match=r"schedule '.*' is already declared for report.build"):

        @queue.job(cron="@daily", name="weekly")
        def weekly() -> None: ...


def test_what_is_encrypted_cannot_lie_in_a_schedule() -> None:
    queue = Queue()

    @queue.job(encrypt=["body"])
    def send(to: str, body: str = "") -> None: ...

    with pytest.raises(InvalidValue, match=r"payload.body must be a payload without encrypted fields"):
        queue.schedule("weekly", send, {"to": "ann", "body": "secret"}, cron="@weekly")
    queue.schedule("weekly", send, {"to": "ann"}, cron="@weekly")


# --- at a terminal ------------------------------------------------------------------------------


@pytest.fixture
def clockwork(windlass: Terminal) -> str:
    """An application with schedules, and how to name it."""
    windlass.write(
        "clockwork.py",
        """
from windlass import Queue

queue = Queue()

@queue.job(cron="0 3 * * *", tz="Europe/Berlin")
def nightly() -> None: ...

@queue.job(every="1s", overlap="queue")
def tick() -> None: ...

@queue.job
def report(days: int) -> None: ...
""",
    )
    return "clockwork:queue"


def listed(windlass: Terminal) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in windlass.ok("schedule", "list", "--json").json["schedules"]}


def test_a_walk_through_schedules(
    windlass: Terminal, clockwork: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_DATABASE_URL", store_url)
    weekly = ("schedule", "add", "weekly", "report", '{"days": 7}', "--cron", "0 6 * * mon")
    assert "weekly: added, next 2" in windlass.ok(*weekly, "--app", clockwork).out
    windlass.ok("schedule", "add", "backup", "--command", "echo hi", "--every", "1h", "--jitter", "5m")
    found = listed(windlass)
    assert (found["weekly"]["type"], found["weekly"]["payload"]) == ("report", {"days": 7})
    assert (found["backup"]["every"], found["backup"]["jitter"], found["backup"]["state"]) == (
        3600,
        300,
        "active",
    )
    assert found["backup"]["notes"] == ["no running worker serves its type shell"]

    # Held, let go, run by hand, changed, forgotten.
    windlass.ok("schedule", "pause", "backup")
    assert listed(windlass)["backup"]["state"] == "paused"
    assert windlass.ok("schedule", "resume", "backup", "--json").json["next_at"] is not None
    job = windlass.ok("schedule", "run", "backup", "--json").json["job"]
    assert windlass.ok("show", job, "--json").json["key"] == f"schedule:backup:by-hand:{job}"
    assert job in windlass.ok("schedule", "show", "backup").out
    again = windlass(*weekly)
    assert (again.code, again.err.count("\n")) == (1, 1)
    windlass.ok(*weekly, "--tz", "America/New_York", "--replace")
    assert listed(windlass)["weekly"]["tz"] == "America/New_York"
    windlass.ok("schedule", "remove", "weekly")
    assert set(listed(windlass)) == {"backup"}
    assert "1 schedule; next is backup in" in windlass.ok("status").out


def test_workers_enter_what_code_declares_and_fire_it(windlass: Terminal, clockwork: str) -> None:
    worker = windlass.start("worker", "start", clockwork, "--log-json")
    assert worker.stderr is not None
    try:
        assert any("schedule.fired" in line for line in worker.stderr)
        found = listed(windlass)
        assert {name: each["origin"] for name, each in found.items()} == {"nightly": "code", "tick": "code"}
        assert found["nightly"]["notes"] == []
        refused = windlass("schedule", "remove", "nightly")
        assert (refused.code, "declared in code" in refused.err) == (1, True)
    finally:
        worker.terminate()
        worker.communicate(timeout=PATIENCE)
    assert worker.returncode == 0
    # If it is three o'clock in Berlin just now, so be it.
    assert {job["type"] for job in windlass.jobs()} - {"nightly"} == {"tick"}


def test_a_schedule_whose_code_or_worker_has_gone_says_so(windlass: Terminal, clockwork: str) -> None:
    windlass.apart("worker", "start", clockwork, "--until-empty")
    told = windlass.ok("status").out
    assert "No worker is running, so nobody runs what 2 schedules bring" in told
    windlass.write(
        "clockwork.py", "from windlass import Queue\nqueue = Queue()\n@queue.job\ndef nightly(): ...\n"
    )
    windlass.apart("worker", "start", clockwork, "--until-empty")
    assert listed(windlass)["nightly"]["state"] == "withdrawn"
    assert "! nightly: no live release declares it any more" in windlass.ok("schedule", "list").out
    windlass.ok("schedule", "remove", "nightly")
    # The other one's type has gone as a whole: nobody says so but that no worker serves it.
    assert "no running worker serves its type tick" in windlass.ok("schedule", "list").out


def test_a_scheduler_alone_makes_jobs_and_ends_when_told(windlass: Terminal, clockwork: str) -> None:
    scheduler = windlass.start("scheduler", clockwork, "--log-json")
    assert scheduler.stderr is not None
    try:
        assert any("schedule.fired" in line for line in scheduler.stderr)
    finally:
        scheduler.terminate()
        scheduler.communicate(timeout=PATIENCE)
    assert scheduler.returncode == 0
    assert {job["state"] for job in windlass.jobs("--type", "tick")} == {"pending"}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("x",), 2, "say either a TYPE or --command"),
        (("x", "report", "--command", "true", "--every", "1h"), 2, "say either a TYPE or --command"),
        (("x", "--command", "true"), 2, "give cron or every, one of the two"),
        (
            ("x", "--command", "true", "--every", "1h", "--cron", "@daily"),
            2,
            "give cron or every, one of the two",
        ),
        (("x", "--command", "true", "--cron", "0 3 * *"), 2, "cron must be five fields"),
        (
            ("x", "--command", "true", "--cron", "@daily", "--tz", "Mars/X"),
            2,
            "tz must be the name of a time zone",
        ),
        (("x", "--command", "true", "--every", "0.1s"), 2, "every must be a duration between 1s"),
        (("x", "--command", "true", "--every", "1h", "--priority", "11"), 2, "priority must be"),
        (("X", "--command", "true", "--every", "1h"), 2, "name must be"),
        (("x", "nothing", "--every", "1h"), 1, "unknown job type 'nothing'"),
        (("x", "shell", '{"command": "true", "x": 1}', "--every", "1h"), 1, "payload"),
        (("x", "shell", "{", "--every", "1h"), 2, "JSON"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    windlass: Terminal, words: tuple[str, ...], code: int, told: str
) -> None:
    answer = windlass("schedule", "add", *words)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1), answer
    assert told in answer.err


def test_verbs_on_no_schedule_say_so_in_one_line(windlass: Terminal) -> None:
    windlass.ok("schedule", "add", "some", "--command", "true", "--every", "1h")
    for verb in ("show", "pause", "resume", "run", "remove"):
        refused = windlass("schedule", verb, "nothing")
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert "no schedule has the name 'nothing'" in refused.err


def test_a_long_pause_is_named_in_the_history() -> None:
    queue = Queue()

    @queue.job(every="1h")
    def tick() -> None: ...

    with override(queue, start=START) as kit:
        kit.drain()
        queue.store.pause_schedule("tick", by="ann")
        kit.advance(timedelta(days=3))
        queue.store.resume_schedule("tick")
        kit.drain()
        [missed] = queue.store.fires("tick")
        assert (missed.at, missed.until) == (START + timedelta(hours=1), START + timedelta(days=3))
