"""Jobs in processes of their own: what crosses over, what is enforced, and what is left behind."""

from __future__ import annotations

import base64
import contextlib
import errno
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.waiting import PATIENCE, WHOLE_RUN, gone, until
from tests.worker import childjobs
from tests.worker.scene import let_time_be_over
from tests.worker.stores import on_both
from windlass.errors import InvalidValue
from windlass.job import Job, JobState, Reason
from windlass.outcome import Lost, Policy, Result, decide, hung
from windlass.policy import Retry
from windlass.queue import Queue
from windlass.store.engine import Settlement, Want
from windlass.worker.children import messages
from windlass.worker.children.child import Child, ChildRun
from windlass.worker.children.process_tree import descendants

url = on_both
AT_ONCE = Retry(kind="fixed", base=0, jitter=0)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and trees are read from /proc")


def run(queue: Queue, function: Callable[..., Any], *arguments: Any, **options: Any) -> Job:
    """Run one job of a function in a child, once unless told otherwise, and see its end."""
    given = {"executor": "process", "max_attempts": 1, "retry": AT_ONCE, **options}
    job_type = queue.job(**given)(function)
    with queue.worker():
        job: Job = job_type.enqueue(*arguments).wait(PATIENCE)
    return job


def result(job: Job) -> Any:
    assert job.state is JobState.COMPLETED, job.error
    return None if job.result is None else msgspec.json.decode(job.result)


def error(job: Job) -> tuple[Reason, str]:
    assert job.error is not None
    return job.error.reason, job.error.message


def parent_of(pid: int) -> int | None:
    """Who began a process; None once it is gone, also if that is just now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).ppid()
    return None


# --- what crosses over ---


def test_arguments_and_results_cross_over(queue: Queue) -> None:
    assert result(run(queue, childjobs.add, 2, 3)) == 5


def test_a_warm_child_runs_one_job_after_the_other(queue: Queue) -> None:
    pid = queue.job(executor="process")(childjobs.pid)
    with queue.worker(processes=1):
        seen = {pid.enqueue().result(PATIENCE) for _ in range(5)}
    assert len(seen) == 1
    assert seen != {os.getpid()}
    until(lambda: all(gone(each) for each in seen), "it ends with the worker")


def test_a_child_is_replaced_after_so_many_jobs(queue: Queue) -> None:
    pid = queue.job(executor="process")(childjobs.pid)
    with queue.worker(processes=1, child_jobs=2):
        seen = [pid.enqueue().result(PATIENCE) for _ in range(4)]
    assert seen[0] == seen[1] != seen[2] == seen[3]


def test_a_child_that_has_grown_is_replaced(queue: Queue) -> None:
    keep = queue.job(executor="process")(childjobs.keep)
    with queue.worker(processes=1, child_growth="20MB"):
        first = keep.enqueue(50).result(PATIENCE)
        assert keep.enqueue(0).result(PATIENCE) != first


def test_the_context_crosses_over(queue: Queue) -> None:
    job = run(queue, childjobs.tell, timeout=3600)
    told = result(job)
    assert (told["id"], told["attempt"], told["cancelled"]) == (job.id, 1, False)
    assert 3600 - PATIENCE < told["left"] <= 3600


def test_what_the_context_does_it_does_from_a_child_too(queue: Queue) -> None:
    job = run(queue, childjobs.use_context)
    [ids, first, second, extended] = result(job)
    assert (first, second, extended) == ("new", "done", True)
    # Enqueued with the completion.
    assert queue.get(ids[0]).type == "pid"


def test_how_far_it_has_come_is_told_from_a_child(queue: Queue, tmp_path: Path) -> None:
    far = queue.job(executor="process")(childjobs.come_far)
    with queue.worker():
        handle = far.enqueue(str(tmp_path / "go"))
        until(lambda: queue.store.progress(handle.id), "its progress is stored")
        progress = queue.store.progress(handle.id)
        (tmp_path / "go").touch()
        handle.wait(PATIENCE)
    assert progress is not None
    assert (progress.done, progress.total, progress.message) == (3, 4, "nearly there")


def test_a_coroutine_in_a_child_has_a_side_effect_once(queue: Queue) -> None:
    assert result(run(queue, childjobs.use_once_async)) == ["new", "done"]


def test_an_upgraded_payload_crosses_over_as_the_handler_takes_it(tmp_path: Path) -> None:
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as old:
        before = old.job(name="add")(lambda a: a)
        job = before.enqueue(2)
        new = Queue(f"sqlite:///{tmp_path}/jobs.db")
        add = new.job(name="add", version=2, executor="process")(childjobs.add)
        add.upgrade(from_version=1)(lambda payload: {**payload, "b": 40})
        with new, new.worker():
            assert job.result(PATIENCE) == 42


def test_an_encrypted_field_crosses_over_as_the_handler_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", base64.b64encode(bytes(32)).decode())
    with Queue(f"sqlite:///{tmp_path}/jobs.db") as queue:
        job = run(queue, childjobs.add, 2, 3, encrypt=["b"])
        assert b'"b":3' not in bytes(job.payload)
        assert result(job) == 5


def test_a_coroutine_runs_in_a_child_too(queue: Queue) -> None:
    job = run(queue, childjobs.tell_async)
    assert result(job)["id"] == job.id
    assert result(job)["pid"] != os.getpid()


def test_what_it_prints_is_kept_and_what_it_logs_is_logged_with_its_fields(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        job = run(queue, childjobs.talk)
    output = job.history[0].output
    assert output is not None
    assert (output.stdout, output.stderr) == ("to stdout\n", "to stderr\n")
    said = {record.getMessage(): vars(record) for record in caplog.records}
    assert said["from a logger"]["job"] == job.id
    assert (said["from the context"]["type"], said["from the context"]["step"]) == ("talk", 3)


def test_an_exception_is_told_with_its_traceback(queue: Queue) -> None:
    job = run(queue, childjobs.odd)
    assert error(job) == (Reason.EXCEPTION, "this and that")
    assert job.error is not None
    assert job.error.kind == "tests.worker.childjobs.Odd"
    told = job.history[0].error
    assert told is not None
    assert "in odd" in (told.traceback or "")


def test_an_exception_whose_words_end_the_program_is_recorded_by_its_own_class(queue: Queue) -> None:
    job = run(queue, childjobs.raise_exits, max_attempts=1)
    assert job.error is not None
    assert job.error.kind == f"{childjobs.__name__}.Exits"
    assert "could not be read: SystemExit" in job.error.message


def test_the_rules_of_a_type_hold_for_exceptions_in_children(queue: Queue) -> None:
    job = run(queue, childjobs.odd, rules={childjobs.Odd: "fatal"}, max_attempts=5)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)


def test_rules_that_are_a_function_are_asked_in_the_child(queue: Queue) -> None:
    job = run(queue, childjobs.odd, rules=childjobs.odd_is_fatal, max_attempts=5)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)


def test_rules_that_no_child_can_import_leave_the_defaults(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    rules: Any = lambda _: "cancel"  # noqa: E731 - a function without a name
    job = run(queue, childjobs.odd, rules=rules, max_attempts=1)
    assert job.state is JobState.DEAD
    assert "rules.not_found" in {record.message for record in caplog.records}


def test_the_status_of_an_http_error_crosses_over(queue: Queue) -> None:
    job = run(queue, childjobs.answered, 404, max_attempts=5)
    assert (job.state, job.attempts) == (JobState.DEAD, 1)


def test_the_handlers_own_words_cross_over(queue: Queue) -> None:
    assert run(queue, childjobs.fatal, max_attempts=5).attempts == 1
    snooze = queue.job(executor="process")(childjobs.snooze)
    with queue.worker():
        handle = snooze.enqueue()
        until(lambda: queue.get(handle.id).snoozes == 1, "it is snoozed")


@pytest.mark.parametrize("function", [childjobs.unkeepable, childjobs.set_unkeepable])
def test_a_result_that_cannot_be_kept_leaves_the_job_completed(
    queue: Queue, function: Callable[..., Any]
) -> None:
    job = run(queue, function, max_attempts=5)
    assert (job.state, job.attempts, job.result) == (JobState.COMPLETED, 1, None)
    assert job.result_missing is not None
    assert "TypeError" in job.result_missing


@pytest.mark.parametrize("function", [childjobs.unkeepable, childjobs.set_unkeepable])
def test_a_result_that_is_required_and_cannot_be_kept_is_fatal_in_a_child(
    queue: Queue, function: Callable[..., Any]
) -> None:
    job = run(queue, function, max_attempts=5, result="required")
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    assert job.error is not None
    assert job.error.kind == "ResultNotKept"


def test_a_child_keeps_no_result_where_its_type_keeps_none(queue: Queue) -> None:
    job = run(queue, childjobs.pid, result=False)
    assert (job.state, job.result, job.result_missing) == (JobState.COMPLETED, None, None)


def test_a_fork_that_returns_ends_quietly(queue: Queue) -> None:
    assert result(run(queue, childjobs.fork_and_return))


def test_handlers_of_the_main_file_are_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from windlass import Queue\n"
        f"queue = Queue('sqlite:///{tmp_path}/main.db')\n"
        "@queue.job(executor='process')\n"
        "def double(n: int) -> list[int]:\n"
        "    return [2 * n, os.getpid()]\n"
        "if __name__ == '__main__':\n"
        "    with queue.worker():\n"
        f"        doubled, pid = double.enqueue(21).result({PATIENCE})\n"
        "    print(doubled, pid != os.getpid())\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=WHOLE_RUN
    )
    assert (done.stdout, done.stderr) == ("42 True\n", "")


def test_a_draft_of_another_queue_is_refused_in_a_child_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from windlass import Context, Queue, Refused\n"
        "from windlass.store.jobs import Filter\n"
        f"queue = Queue('sqlite:///{tmp_path}/main.db')\n"
        f"same = Queue('{tmp_path}/main.db')\n"
        f"other = Queue('sqlite:///{tmp_path}/other.db')\n"
        "@queue.job\n"
        "def ours() -> None: ...\n"
        "@other.job\n"
        "def theirs() -> None: ...\n"
        "@queue.job(executor='process')\n"
        "def parent(ctx: Context) -> str:\n"
        "    ctx.enqueue(ours.draft(), same.draft('ours', {}))\n"
        "    try:\n"
        "        ctx.enqueue(ours.draft(), theirs.draft())\n"
        "    except Refused as error:\n"
        "        return str(error)\n"
        "    return 'taken'\n"
        "if __name__ == '__main__':\n"
        "    with queue.worker():\n"
        f"        print(parent.enqueue().result({PATIENCE}))\n"
        "    print(queue.store.count(Filter(), limit=9))\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=WHOLE_RUN
    )
    told, jobs = done.stdout.splitlines()
    assert told.startswith("drafts[1] is a job of type theirs that another queue made, for another store")
    assert jobs == "3"


def test_a_function_that_no_child_could_import_is_refused_at_once(queue: Queue) -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidValue, match="top level"):
        queue.job(executor="process")(inner)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "512MB"}, 'executor="process"'),
        ({"cpu_time": 3}, 'executor="process"'),
        ({"executor": "process", "memory": "lots"}, "memory must be a size"),
        ({"executor": "process", "memory": 5}, "at least 16MB"),
        ({"executor": "process", "cpu_time": 0}, "cpu_time must be more than 0"),
        ({"executor": "loop"}, "executor must be thread or process"),
    ],
)
def test_limits_that_could_not_be_enforced_are_refused(
    queue: Queue, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        queue.job(**options)(childjobs.add)


# --- deaths ---


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (childjobs.segfault, (), "killed by SIGSEGV"),
        (childjobs.leave, (3,), "exit code 3"),
        (childjobs.kill_self, (), "killed by SIGKILL"),
    ],
)
def test_f02_a_job_that_kills_its_child_at_each_attempt_ends_dead_with_that_story(
    queue: Queue, function: Callable[..., Any], arguments: tuple[Any, ...], words: str
) -> None:
    job = run(queue, function, *arguments, max_attempts=3)
    assert (job.state, job.attempts, job.losses) == (JobState.DEAD, 3, 0)
    for attempt in job.history:
        assert attempt.error is not None
        assert attempt.error.reason is Reason.CHILD_CRASHED
        assert words in attempt.error.message
        assert "resident size at last" in attempt.error.message
        assert attempt.output is not None
        assert attempt.output.exit_code not in (None, 0)


def test_a_segfault_names_the_line_that_died(queue: Queue) -> None:
    output = run(queue, childjobs.segfault).history[0].output
    assert output is not None
    assert "in segfault" in output.stderr


def test_neighbours_of_a_crash_never_notice(queue: Queue) -> None:
    crash = queue.job(executor="process", max_attempts=3, retry=AT_ONCE)(childjobs.segfault)
    add = queue.job(executor="process", max_attempts=1)(childjobs.add)
    with queue.worker(processes=3):
        crashes = [crash.enqueue() for _ in range(3)]
        good = [add.enqueue(each, 1) for each in range(60)]
        assert [each.result(PATIENCE) for each in good] == [each + 1 for each in range(60)]
        assert {each.wait(PATIENCE).state for each in crashes} == {JobState.DEAD}


def test_a_dead_child_is_let_go_without_a_search_for_garbage(queue: Queue) -> None:
    crash = queue.job(executor="process", max_attempts=1)(childjobs.segfault)
    with queue.worker(processes=1):
        gc.collect()
        gc.disable()
        try:
            # Of others of this process, which are none of ours.
            before = errands()
            crash.enqueue().wait(PATIENCE)
            until(lambda: all(any(each is one for one in before) for each in errands()), "ours are gone")
        finally:
            gc.enable()


def errands() -> list[ChildRun | Child]:
    """Those that there are in this process."""
    return [each for each in gc.get_objects() if type(each) in (ChildRun, Child)]


def test_who_is_told_to_stop_after_its_end_does_not_stop_the_next_job_of_its_child(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its time is over just then: the child has been given back, and the run is not settled yet."""
    pid = queue.job(executor="process")(childjobs.pid)
    late: list[Callable[[], object]] = []
    carry = ChildRun.carry

    def noting(child_run: ChildRun, work: messages.Work) -> Result:
        [run] = [each for each in worker.parts.runs.values() if each.carrier is child_run]
        late.append(lambda: child_run.halt(run))
        return carry(child_run, work)

    monkeypatch.setattr(ChildRun, "carry", noting)
    with queue.worker(processes=1) as worker:
        first = pid.enqueue().result(PATIENCE)
        said: list[object] = []
        monkeypatch.setattr(messages.Mouth, "say", lambda _, message: said.append(message))
        late[0]()
        monkeypatch.undo()
        assert said == []
        assert pid.enqueue().result(PATIENCE) == first


def test_a_child_that_dies_between_two_jobs_leaves_nothing_behind(queue: Queue) -> None:
    pid = queue.job(executor="process", max_attempts=1)(childjobs.pid)
    with queue.worker(processes=1):
        first = pid.enqueue().result(PATIENCE)
        os.kill(first, signal.SIGKILL)
        until(lambda: gone(first), "it is dead")
        assert pid.enqueue().result(PATIENCE) != first
        until(lambda: not psutil.pid_exists(first), "somebody has waited for it")


def test_a_child_that_cannot_be_taken_up_is_not_left_behind(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = queue.job(executor="process", max_attempts=1)(childjobs.add)
    begun: list[int] = []

    def no_more(pid: int) -> int:
        begun.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", no_more)
    with queue.worker(processes=1):
        reason, message = error(add.enqueue(1, 2).wait(PATIENCE))
        assert (reason, "Too many open files" in message) == (Reason.CHILD_CRASHED, True)
        assert not psutil.pid_exists(begun[0])
        monkeypatch.undo()
        assert add.enqueue(1, 2).result(PATIENCE) == 3


def test_an_application_that_cannot_be_imported_is_told(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = queue.job(executor="process", max_attempts=1)(childjobs.add)
    monkeypatch.setenv("PYTHONHASHSEED", "nonsense")
    with queue.worker():
        reason, message = error(add.enqueue(1, 2).wait(PATIENCE))
    assert reason is Reason.CHILD_CRASHED
    assert "no child process could be started" in message


# --- limits ---


def test_f05_an_allocation_beyond_the_limit_fails_that_job_alone(queue: Queue) -> None:
    reason, message = error(run(queue, childjobs.allocate, 2048, memory="256MB"))
    assert reason is Reason.MEMORY_LIMIT
    assert "over its memory limit of 256 MB" in message


def test_what_fits_the_limit_passes(queue: Queue) -> None:
    assert result(run(queue, childjobs.allocate, 100, memory="256MB")) == 100 * 2**20


def test_the_limit_holds_for_all_descendants_together(queue: Queue) -> None:
    reason, message = error(run(queue, childjobs.allocate_below, 180, memory="256MB"))
    assert reason is Reason.MEMORY_LIMIT
    assert "with its processes it took" in message


@pytest.mark.parametrize("function", [childjobs.spin, childjobs.spin_below])
def test_cpu_time_is_bounded_for_all_descendants(queue: Queue, function: Callable[[], None]) -> None:
    reason, message = error(run(queue, function, cpu_time=0.5))
    assert (reason, message) == (Reason.TIMEOUT, "stopped after its cpu_time of 0.5 s")


@pytest.mark.parametrize("function", [childjobs.spin, childjobs.deaf])
def test_f31_a_timeout_stops_whatever_the_handler_does(queue: Queue, function: Callable[[], None]) -> None:
    job = run(queue, function, timeout=0.5)
    assert error(job) == (Reason.TIMEOUT, "stopped after its timeout of 0.5 s")


# --- stopping ---


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (childjobs.tidy, "cleaned up"),
        (childjobs.tidy_async, "cleaned up"),
        (childjobs.look, "saw it: True"),
    ],
)
def test_a_cancelled_job_may_tidy_up(
    queue: Queue, tmp_path: Path, function: Callable[..., Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Less than a second is enough for that on a machine that has nothing else to do.
    for name in ("children.child.LOOK_SECONDS", "children.child.TERM_SECONDS", "timeouts.COMMAND_PATIENCE"):
        monkeypatch.setattr(f"windlass.worker.{name}", PATIENCE)
    job_type = queue.job(executor="process")(function)
    note = tmp_path / "note"
    with queue.worker():
        handle = job_type.enqueue(str(note))
        until(note.exists, "it begins")
        queue.cancel(handle.id)
        assert handle.wait(PATIENCE).state is JobState.CANCELLED
    assert note.read_text() == word


@pytest.mark.parametrize("crash", [True, False])
def test_grandchildren_end_with_their_job_wherever_they_went(
    queue: Queue, tmp_path: Path, *, crash: bool
) -> None:
    breed = queue.job(executor="process", max_attempts=1)(childjobs.breed)
    note = tmp_path / "pids"
    with queue.worker() as worker:
        handle = breed.enqueue(str(note), crash=crash)
        until(lambda: note.exists() and len(note.read_text().split()) == 3, "they are bred")
        if not crash:
            let_time_be_over(worker.parts)
        job = handle.wait(PATIENCE)
        pids = [int(each) for each in note.read_text().split()]
        until(lambda: all(gone(pid) for pid in pids), "every grandchild is gone")
    assert error(job)[0] is (Reason.CHILD_CRASHED if crash else Reason.TIMEOUT)


def test_a_worker_that_stops_leaves_no_child_and_gives_the_job_back(queue: Queue, tmp_path: Path) -> None:
    tidy = queue.job(executor="process")(childjobs.tidy)
    note, before = tmp_path / "note", descendants(os.getpid())
    with queue.worker(grace=0, exit_after=60):
        handle = tidy.enqueue(str(note))
        until(note.exists, "it begins")
    job = queue.get(handle.id)
    assert (job.state, job.attempts, job.interruptions) == (JobState.PENDING, 0, 1)
    # What those that were there before have begun, such as a database server, is none of ours.
    began = {pid: parent_of(pid) for pid in descendants(os.getpid()) if pid not in before and not gone(pid)}
    assert [pid for pid, parent in began.items() if parent is not None and parent not in before] == []


# --- suspects ---


def test_a_suspect_runs_in_a_child_in_which_nothing_else_does_whatever_its_executor(queue: Queue) -> None:
    tell = queue.job(max_attempts=5)(childjobs.tell)
    tell_async = queue.job(max_attempts=5)(childjobs.tell_async)
    process = queue.job(executor="process", max_attempts=5)(childjobs.pid)
    handles = [each.enqueue() for each in (tell, tell_async, process)]
    for handle in handles:
        lose_twice(queue, handle.id)
    with queue.worker(processes=1):
        pids = [handles[0].result(PATIENCE)["pid"], handles[1].result(PATIENCE)["pid"]]
        pids.append(handles[2].result(PATIENCE))
        assert process.enqueue().result(PATIENCE) not in pids
        assert os.getpid() not in pids


def test_once_a_job_hangs_a_worker_others_of_its_type_run_in_children(queue: Queue) -> None:
    tell = queue.job(max_attempts=5)(childjobs.tell)
    pid = queue.job(childjobs.pid)
    hangs, others = tell.enqueue(), [tell.enqueue() for _ in range(3)]
    want = Want(worker="hung", types={queue.get(hangs.id).type: 1}, limit=1, lease=timedelta(seconds=60))
    [lease] = queue.store.claim(want).leases
    queue.store.note_hang(lease.job.seq, lease.token, hung(5.0, ""))
    with queue.worker():
        assert os.getpid() not in [handle.result(PATIENCE)["pid"] for handle in others]
        assert pid.enqueue().result(PATIENCE) == os.getpid()
    assert hangs.id == lease.id


def test_only_a_few_suspects_have_children_at_once_and_they_share_them_one_after_the_other(
    queue: Queue,
) -> None:
    tell = queue.job(max_attempts=5)(childjobs.tell)
    handles = [tell.enqueue() for _ in range(12)]
    lose_twice(queue, handles[0].id, count=len(handles))
    with queue.worker(threads=12, processes=1) as worker:
        pids = [handle.result(PATIENCE)["pid"] for handle in handles]
        until(worker.parts.idle, "all have ended")
    assert len(set(pids)) < 12, "children are not begun anew for each"
    assert sum(entry.error is None for handle in handles for entry in handle.get().history) == 12


def test_suspects_that_wait_for_a_child_are_given_back_when_the_worker_stops(
    queue: Queue, tmp_path: Path
) -> None:
    tidy = queue.job(max_attempts=5)(childjobs.tidy)
    handles = [tidy.enqueue(str(tmp_path / f"note{number}")) for number in range(6)]
    lose_twice(queue, handles[0].id, count=len(handles))
    with queue.worker(threads=6, processes=1, grace=0, exit_after=60) as worker:
        until(lambda: worker.parts.pools[0].busy == 6, "all have slots")
        until(lambda: len(list(tmp_path.glob("note*"))) == 2, "two run")
    ended = [queue.get(handle.id) for handle in handles]
    assert {job.state for job in ended} == {JobState.PENDING}
    assert sorted(job.interruptions for job in ended) == [0, 0, 0, 0, 1, 1]
    assert {job.attempts for job in ended} == {2}, "what is given back costs no attempt"


def lose_twice(queue: Queue, job_id: str, *, count: int = 1) -> None:
    """Let two workers die over a job, or over all so many of its type, as the store tells it."""
    store, job_type = queue.store, queue.get(job_id).type
    for _ in range(2):
        want = Want(worker="gone", types={job_type: 1}, limit=count, lease=timedelta(seconds=60))
        leases = store.claim(want).leases
        assert len(leases) == count
        lost = Lost(Reason.WORKER_LOST)
        losses = [
            Settlement(each, decide(each.job, lost, Policy(), now=each.until, chance=lambda: 0.0))
            for each in leases
        ]
        assert store.settle(losses) == []
