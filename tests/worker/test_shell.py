"""How commands run, and how they surely end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.waiting import PATIENCE, gone, until
from tests.worker.scene import let_time_be_over
from windlass.job import MAX_RESULT, Job, JobState, Output, Reason
from windlass.outcome import Raised, Returned
from windlass.queue import Queue
from windlass.worker.shell import KEPT, CommandFailed, _result, told_end
from windlass.worker.watchdog import Guard


def run(queue: Queue, command: str | list[str], **fields: Any) -> Job:
    """Run a command once, to its end."""
    handle = queue.enqueue("shell", {"command": command, **fields}, max_attempts=1)
    with queue.worker():
        return handle.wait(PATIENCE)


def run_past_its_time(queue: Queue, command: str, begun: Path) -> Job:
    """Run a command whose time is over once it has made a file."""
    handle = queue.enqueue("shell", {"command": command}, max_attempts=1)
    with queue.worker() as worker:
        until(begun.exists, "the command begins")
        let_time_be_over(worker.parts)
        return handle.wait(PATIENCE)


def value(job: Job) -> Any:
    assert job.result is not None
    return msgspec.json.decode(job.result)


def all_gone(pids: Path) -> bool:
    """Whether every process is gone of which the numbers stand in a file."""
    return all(gone(int(pid)) for pid in pids.read_text().split())


# --- what a command says and how it ends ---


def test_a_command_that_succeeds_leaves_its_output(queue: Queue) -> None:
    job = run(queue, "echo out; echo err >&2")
    assert job.state is JobState.COMPLETED
    assert value(job) == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}
    [attempt] = job.history
    assert attempt.output is not None
    assert (attempt.output.exit_code, attempt.output.stdout) == (0, "out\n")


def test_a_list_is_a_program_with_its_arguments_and_no_shell_reads_them(queue: Queue) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "'quoted'", "", "*"]
    assert value(run(queue, words))["stdout"] == "a b|$HOME|'quoted'||*|"


def test_a_command_that_fails_says_its_code_and_the_last_line_of_its_stderr(queue: Queue) -> None:
    job = run(queue, "echo first >&2; echo bad >&2; exit 3")
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert (job.error.reason, job.error.message) == (Reason.EXCEPTION, "exit code 3: bad")
    assert job.history[0].output is not None
    assert job.history[0].output.exit_code == 3
    assert job.history[0].output.stderr == "first\nbad\n"


def test_a_command_killed_by_a_signal_names_it(queue: Queue) -> None:
    job = run(queue, "kill -SEGV $$")
    assert job.error is not None
    assert job.error.message == "killed by SIGSEGV"


@pytest.mark.parametrize(
    ("exit_code", "words"), [(1, "exit code 1"), (-9, "killed by SIGKILL"), (-63, "killed by signal 63")]
)
def test_every_ending_has_words(exit_code: int, words: str) -> None:
    assert told_end(exit_code) == words


def test_a_program_that_does_not_exist_fails_with_its_name(queue: Queue) -> None:
    job = run(queue, ["no-such-program-anywhere"])
    assert job.error is not None
    assert job.error.message.startswith("exit code 127: ")
    assert "no-such-program-anywhere" in job.error.message


def test_a_folder_that_does_not_exist_fails_with_its_name(queue: Queue) -> None:
    job = run(queue, "true", cwd="/no/such/folder")
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert "/no/such/folder" in job.error.message


def test_a_command_sees_its_job_its_folder_and_its_environment(queue: Queue, tmp_path: Path) -> None:
    command = 'echo "$WINDLASS_JOB_ID $WINDLASS_ATTEMPT $EXTRA $(pwd)"'
    job = run(queue, command, cwd=str(tmp_path), env={"EXTRA": "x y"})
    assert value(job)["stdout"] == f"{job.id} 1 x y {tmp_path}\n"


def test_a_command_reads_nothing_from_the_worker(queue: Queue) -> None:
    assert value(run(queue, "cat; echo end"))["stdout"] == "end\n"


def test_output_without_bounds_is_read_and_only_its_end_is_kept(queue: Queue) -> None:
    job = run(queue, "head -c 5000000 /dev/zero | tr '\\0' x; echo the end; seq 100000 >&2")
    said = value(job)
    assert said["stdout"].endswith("xxxthe end\n")
    assert len(said["stdout"]) <= KEPT + 50
    assert said["stderr"].endswith("99999\n100000\n")
    assert job.history[0].output is not None
    assert "bytes before)" in job.history[0].output.stdout


def test_output_that_is_no_text_is_kept_as_far_as_it_can_be(queue: Queue) -> None:
    job = run(queue, r"printf 'a\000b\377c\303\251'")
    assert value(job)["stdout"] == "a\N{SYMBOL FOR NULL}b\N{REPLACEMENT CHARACTER}cé"


def test_a_success_whose_output_is_all_control_characters_is_still_a_success() -> None:
    output = msgspec.convert({"exit_code": 0, "stdout": "\x01" * KEPT, "stderr": "\x01" * KEPT}, type=Output)
    result = _result(0, output)
    assert isinstance(result, Returned)
    assert result.value is not None
    assert len(result.value) <= MAX_RESULT


def test_a_failure_carries_its_output() -> None:
    output = Output(2, "", "oops\n")
    result = _result(2, output)
    assert isinstance(result, Raised)
    assert isinstance(result.exception, CommandFailed)
    assert result.output == output


# --- how it ends when it does not end by itself ---


def test_a_command_past_its_timeout_is_killed_with_its_whole_group(queue: Queue, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 100 & echo $! $$ > {pids}.new; echo began; mv {pids}.new {pids}; sleep 100"
    job = run_past_its_time(queue, command, pids)
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert (job.error.reason, job.error.message) == (Reason.TIMEOUT, "Command timed out after 300s")
    assert job.history[0].output is not None
    assert job.history[0].output.stdout == "began\n"
    # A signal was sent to each; the last to hear it may be a moment behind.
    until(lambda: all_gone(pids), "the whole group is gone")


def test_a_command_that_ignores_the_request_to_end_is_killed(queue: Queue, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    job = run_past_its_time(queue, f"trap '' TERM; touch {deaf}; while :; do sleep 0.05; done", deaf)
    assert job.error is not None
    assert job.error.reason is Reason.TIMEOUT
    assert job.history[0].output is not None
    assert job.history[0].output.exit_code == -signal.SIGKILL


def test_a_commands_own_timeout_stands_instead_of_its_types(queue: Queue) -> None:
    queue.store.set_setting("shell.timeout", "100ms")
    job = run(queue, "sleep 0.3; echo patient", timeout=30)
    assert job.state is JobState.COMPLETED


def test_descendants_that_hold_the_output_open_end_with_the_command(queue: Queue, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    job = run(queue, f"sleep 100 & echo $! > {pid}; echo done")
    assert job.state is JobState.COMPLETED
    assert value(job)["stdout"] == "done\n"
    until(lambda: all_gone(pid), "it is gone")


def test_one_that_fled_into_a_session_of_its_own_does_not_hold_the_slot(queue: Queue, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    flight = f"setsid sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 100' &"
    job = run(queue, f"{flight} until test -e {pid}; do sleep 0.01; done; echo done")
    assert job.state is JobState.COMPLETED
    assert value(job)["stdout"] == "done\n"
    fled = int(pid.read_text())
    assert not gone(fled), "what leaves the group is beyond us; the slot is not"
    os.kill(fled, signal.SIGKILL)


def test_a_running_command_is_killed_when_its_job_is_cancelled(queue: Queue, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with queue.worker():
        handle = queue.enqueue("shell", {"command": f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 100"})
        until(pid.exists)
        queue.cancel(handle.id)
        job = handle.wait(PATIENCE)
    assert job.state is JobState.CANCELLED
    until(lambda: all_gone(pid), "it is gone")
    assert job.history[0].output is not None


def test_a_worker_without_permission_leaves_commands_alone(queue: Queue) -> None:
    handle = queue.enqueue("shell", {"command": "true"})

    @queue.job
    def other() -> str:
        return "done"

    with queue.worker(shell=False) as worker:
        assert other.enqueue().result(PATIENCE) == "done"
        assert "shell" not in worker.types
    assert handle.state is JobState.PENDING


# --- no orphans ---


def test_the_guard_kills_what_it_knows_when_the_worker_is_gone() -> None:
    guard = Guard()
    processes = [subprocess.Popen(["sleep", "100"], start_new_session=True) for _ in range(3)]
    for process in processes:
        guard.add(process.pid, "mark.1")
    guard.remove(processes[0].pid)
    guard.close()
    assert [process.wait(PATIENCE) for process in processes[1:]] == [-signal.SIGKILL] * 2
    assert processes[0].poll() is None, "one that was taken back is not its business"
    processes[0].kill()
    processes[0].wait()


def test_a_guard_that_died_is_replaced_and_told_everything_again() -> None:
    guard = Guard()
    old, new = (subprocess.Popen(["sleep", "100"], start_new_session=True) for _ in range(2))
    guard.add(old.pid, "mark.1")
    process = guard._process  # noqa: SLF001 - to do it harm
    assert process is not None
    process.kill()
    process.wait()
    guard.add(new.pid, "mark.2")
    guard.close()
    assert old.wait(PATIENCE) == -signal.SIGKILL
    assert new.wait(PATIENCE) == -signal.SIGKILL


_WORKER = """
import sys, threading
from windlass.queue import Queue
queue = Queue(sys.argv[1], shell=True)
with queue.worker():
    threading.Event().wait(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_no_command_survives_a_killed_worker(queue: Queue, path: Path, tmp_path: Path, number: int) -> None:
    pids = tmp_path / "pids"
    command = f"trap '' TERM HUP; sleep 100 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait; sleep 100"
    queue.enqueue("shell", {"command": command})
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, f"sqlite:///{path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as worker:
        until(pids.exists)
        os.kill(worker.pid, number)
    until(lambda: all_gone(pids), "none is left")


_FORKING_WORKER = """
import os, sys, threading
from windlass.queue import Queue
queue = Queue(sys.argv[1], shell=True)
@queue.job
def fork_and_leave(mark: str) -> None:
    if os.fork() == 0:
        with open(mark + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(mark + ".new", mark)
        threading.Event().wait(1000)
with queue.worker():
    threading.Event().wait(1000)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_a_handler_forked_does_not_keep_commands_alive(
    queue: Queue, path: Path, tmp_path: Path
) -> None:
    pids, child = tmp_path / "pids", tmp_path / "child"

    @queue.job
    def fork_and_leave(mark: str) -> None:
        """The worker's own has a body."""

    queue.enqueue("shell", {"command": f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 100"})
    with subprocess.Popen(
        [sys.executable, "-c", _FORKING_WORKER, f"sqlite:///{path}"], stderr=subprocess.DEVNULL
    ) as worker:
        until(pids.exists)
        fork_and_leave.enqueue(str(child))
        until(child.exists)
        worker.kill()
    until(lambda: all_gone(pids), "it is gone")
    os.kill(int(child.read_text()), signal.SIGKILL)


def test_a_forced_exit_ends_every_command_at_once(queue: Queue, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with queue.worker() as worker:
        command = f"trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 100; sleep 100"
        handle = queue.enqueue("shell", {"command": command}, max_attempts=1)
        until(pid.exists)
        worker.abandon()
        job = handle.wait(PATIENCE)
    until(lambda: all_gone(pid), "it is gone")
    assert job.error is not None
    assert job.error.message == "killed by SIGKILL"
