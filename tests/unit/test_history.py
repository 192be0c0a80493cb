"""Does the history checker accept what is possible, and refuse each thing that is not?"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history import check as checker
from tests.history import result
from tests.history.check import Rules, Verdict, check
from tests.history.end import End
from tests.history.record import Call, Outcome, Reader, Recorder, Verb, from_environment, shell_command
from tests.waiting import PATIENCE, until
from windlass.job import Attempt, Error, Job, JobState, Reason

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
RULES = Rules(rerun=15.0)
MAX_ATTEMPTS = 5
REASONS = {
    "raise": Error(Reason.EXCEPTION, "ValueError", "no"),
    "kill": Error(Reason.WORKER_LOST),
    "freeze": Error(Reason.WORKER_LOST, message="it was silent"),
    "stop": Error(Reason.INTERRUPTED),
}


@dataclass(frozen=True)
class History:
    """Calls, and the store that they ended in."""

    calls: tuple[Call, ...]
    end: End

    def judged(self, rules: Rules = RULES) -> Verdict:
        return check(self.calls, self.end, rules)

    def with_job(self, job: Job | None, name: str = "") -> History:
        jobs = dict(self.end.jobs)
        if job is None:
            del jobs[name]
        else:
            jobs[job.id] = job
        return History(self.calls, of_store(jobs))

    def with_calls(self, *calls: Call) -> History:
        return replace(self, calls=calls)

    def of(self, job: str, verb: str = Verb.RUN) -> list[Call]:
        return [call for call in self.calls if call.verb == verb and call.job == job]


def of_store(jobs: dict[str, Job]) -> End:
    counted: dict[str, int] = {}
    for job in jobs.values():
        counted[job.state.value] = counted.get(job.state.value, 0) + 1
    return End(NOW, jobs, counted, dict(counted), frozenset({"alive"}), [])


def made(name: str, state: JobState, history: tuple[Attempt, ...], **fields: object) -> Job:
    error = history[-1].error if history else None
    known: dict[str, object] = {
        "id": name,
        "seq": 1,
        "type": "work",
        "state": state,
        "priority": 5,
        "payload": msgspec.Raw(b"{}"),
        "max_attempts": MAX_ATTEMPTS,
        "attempts": max((entry.number for entry in history), default=0),
        "key": f"key-{name}",
        "error": error,
        "history": history,
        "interruptions": sum(entry.error == REASONS["stop"] for entry in history),
        **dict.fromkeys(("created_at", "enqueued_at", "updated_at", "run_at"), NOW),
    }
    return Job(**(known | fields))  # type: ignore[arg-type] # built from names


class Life:
    """Plays a job's life as the promises allow it, and records it."""

    def __init__(self, name: str, at: float) -> None:
        self.name, self.at = name, at
        self.calls: list[Call] = []
        self.history: list[Attempt] = []

    def call(self, verb: str, seconds: float | None = 1.0, outcome: Outcome = Outcome.ANSWERED) -> Call:
        call = Call(f"{self.name}-{len(self.calls)}", verb, self.at, jobs=(self.name,))
        if seconds is not None:
            self.at += seconds
            call.end, call.outcome = self.at, outcome
        self.calls.append(call)
        return call

    def enqueue(self, lost: int) -> None:
        """Some answers are lost; the same draft is sent again until one comes."""
        for number in range(lost + 1):
            call = self.call(Verb.ENQUEUE, 1.0, Outcome.UNKNOWN if number < lost else Outcome.ANSWERED)
            call.keys = (f"key-{self.name}",)
            call.answer = (self.name,) if call.answered else ()
            self.at += 0.1

    def attempt(self, number: int, fate: str) -> None:
        start = self.at
        process = f"{self.name}-p{len(self.calls)}"
        run = self.call(Verb.RUN, None if fate == "kill" else 2.0)
        run.attempt, run.process = number, process
        if fate in ("raise", "stop"):
            run.outcome = Outcome.REFUSED
        if fate in ("kill", "freeze", "stop"):
            fault = self.call(fate, 0.5)
            fault.jobs, fault.process, fault.start = (), process, start + 1.0
            # Longer than others wait for it: its late result changes nothing.
            self.at = fault.end = fault.start + (12.0 if fate == "freeze" else 1.0)
        if fate == "freeze":
            run.end = self.at + 30.0
        error = REASONS.get(fate)
        outcome = "completed" if error is None else "again"
        self.history.append(Attempt(number, len(self.history) + 1, "w", NOW, NOW, outcome, error=error))
        self.at += 1.0


@st.composite
def lives(draw: st.DrawFn, name: str) -> tuple[list[Call], Job]:
    """Any life that the promises allow."""
    life = Life(name, draw(st.floats(0, 50)))
    life.enqueue(draw(st.integers(0, 2)))
    end = draw(st.sampled_from(["return", "dead", "cancel"]))
    fates = draw(st.lists(st.sampled_from(sorted(REASONS)), max_size=MAX_ATTEMPTS - 1))
    number = 1
    for fate in fates:
        life.attempt(number, fate)
        # What our own shutdown interrupts does not count.
        number += fate != "stop"
    if end == "return":
        life.attempt(number, "return")
        return life.calls, made(name, JobState.COMPLETED, tuple(life.history))
    if end == "cancel":
        life.call("cancel").state = JobState.CANCELLED
        return life.calls, made(name, JobState.CANCELLED, tuple(life.history))
    while number <= MAX_ATTEMPTS:
        life.attempt(number, "raise")
        number += 1
    return life.calls, made(name, JobState.DEAD, tuple(life.history))


@st.composite
def histories(draw: st.DrawFn, least: int = 1) -> History:
    """Several lives, each its own register."""
    calls: list[Call] = []
    jobs: dict[str, Job] = {}
    for number in range(draw(st.integers(least, 4))):
        told, job = draw(lives(f"j{number}"))
        calls += told
        jobs[job.id] = job
    outage = Call("outage", Verb.OUTAGE, 20.0, "*", end=draw(st.floats(21, 30)), outcome=Outcome.ANSWERED)
    return History((*calls, outage), of_store(jobs))


@given(histories())
def test_every_history_that_the_promises_allow_is_accepted(history: History) -> None:
    verdict = history.judged()
    assert verdict.problems == []
    assert all(promise.held for promise in verdict.promises)
    assert verdict.counts["lost"] == 0


# --- broken in each way ---------------------------------------------------------------------------


Broken = Iterator[tuple[str, History]]
MUTATIONS: list[Callable[[History, Job], Broken]] = []


def breaks(mutation: Callable[[History, Job], Broken]) -> Callable[[History, Job], Broken]:
    """One way to break a history by one event: the promises that it breaks; none where it cannot be done."""
    MUTATIONS.append(mutation)
    return mutation


def changed(history: History, old: Call, **fields: object) -> History:
    return history.with_calls(
        *(replace(call, **fields) if call is old else call for call in history.calls)  # type: ignore[arg-type]
    )


def untouched_return(history: History, job: Job) -> Call | None:
    return next((run for run in history.of(job.id) if run.answered and run.end - run.start < 3), None)  # type: ignore[operator]


@breaks
def an_accepted_job_is_lost(history: History, job: Job) -> Broken:
    yield checker.ACCEPTED, history.with_job(None, job.id)


@breaks
def a_job_that_no_one_asked_for(history: History, job: Job) -> Broken:
    left = [call for call in history.calls if call not in history.of(job.id, Verb.ENQUEUE)]
    yield checker.ASKED, history.with_calls(*left)


@breaks
def it_ran_before_it_was_enqueued(history: History, job: Job) -> Broken:
    for run in history.of(job.id)[:1]:
        yield checker.ASKED, changed(history, run, start=-100.0)


@breaks
def a_refused_job_is_there(history: History, job: Job) -> Broken:
    enqueues = history.of(job.id, Verb.ENQUEUE)
    if len(enqueues) == 1:
        yield checker.REFUSED, changed(history, enqueues[0], outcome=Outcome.REFUSED, answer=())


@breaks
def a_key_means_two_jobs(history: History, job: Job) -> Broken:
    [*_, last] = history.of(job.id, Verb.ENQUEUE)
    twin = msgspec.structs.replace(job, id="twin")
    sent = replace(last, id="again", jobs=("twin",), answer=("twin",))
    yield checker.KEYS, history.with_job(twin).with_calls(*history.calls, sent)
    yield checker.KEYS, history.with_job(msgspec.structs.replace(job, key="another"))


@breaks
def a_job_has_not_ended(history: History, job: Job) -> Broken:
    yield checker.ALL_ENDED, history.with_job(msgspec.structs.replace(job, state=JobState.PENDING))


@breaks
def a_job_is_processing_without_a_lease(history: History, job: Job) -> Broken:
    for worker, until_ in (("alive", NOW - timedelta(seconds=1)), ("gone", NOW + timedelta(seconds=30))):
        held = {"state": JobState.PROCESSING, "worker": worker, "lease_until": until_}
        yield checker.LEASED, history.with_job(msgspec.structs.replace(job, **held))


@breaks
def it_ran_too_often(history: History, job: Job) -> Broken:
    yield checker.ATTEMPTS, history.with_job(msgspec.structs.replace(job, attempts=MAX_ATTEMPTS + 1))
    for run in history.of(job.id)[-1:]:
        yield checker.ATTEMPTS, changed(history, run, attempt=MAX_ATTEMPTS + 1)


@breaks
def an_attempt_has_the_number_of_an_earlier_one(history: History, job: Job) -> Broken:
    runs = history.of(job.id)
    if len(runs) > 1 and runs[-1].attempt > runs[-2].attempt and job.history[-2].error != REASONS["freeze"]:
        yield checker.NUMBERS, changed(history, runs[-1], attempt=runs[-2].attempt)


@breaks
def two_executions_overlap(history: History, job: Job) -> Broken:
    runs = history.of(job.id)
    if len(runs) > 1 and job.history[-2].error == REASONS["raise"]:
        yield checker.OVERLAPS, changed(history, runs[-2], end=runs[-1].start + 0.5)


@breaks
def it_ran_again_though_nothing_happened(history: History, job: Job) -> Broken:
    run = untouched_return(history, job)
    if run is not None:
        again = replace(
            run, id="again", start=run.start + 40.0, end=run.start + 41.0, attempt=run.attempt + 1
        )
        yield checker.AGAIN, history.with_calls(*history.calls, again)


@breaks
def it_ran_again_and_its_worker_was_not_killed(history: History, job: Job) -> Broken:
    """The same, when the fault that explains it is not there, or happened to another process."""
    for run in history.of(job.id)[:-1]:
        for fault in history.calls:
            if fault.process == run.process and fault.verb in (Verb.KILL, Verb.FREEZE):
                yield checker.AGAIN, changed(history, fault, process="another")
                yield checker.AGAIN, changed(history, fault, jobs=("another",))
                yield (
                    checker.AGAIN,
                    changed(history, fault, start=fault.start + 900.0, end=fault.start + 901.0),
                )


@breaks
def an_outage_alone_makes_nothing_run_again(history: History, job: Job) -> Broken:
    for run in history.of(job.id)[:-1]:
        for fault in history.calls:
            if fault.process == run.process and fault.verb == Verb.KILL:
                yield checker.AGAIN, changed(history, fault, verb=Verb.OUTAGE, process="*")


@breaks
def what_was_cut_off_never_ran_again(history: History, job: Job) -> Broken:
    runs = history.of(job.id)
    if len(runs) > 1 and job.history[-2].error == REASONS["kill"]:
        left = [call for call in history.calls if call is not runs[-1]]
        pending = msgspec.structs.replace(job, state=JobState.PENDING)
        yield checker.RERUN, history.with_calls(*left).with_job(pending)


@breaks
def what_was_cut_off_ran_again_too_late(history: History, job: Job) -> Broken:
    runs = history.of(job.id)
    if len(runs) > 1 and job.history[-2].error == REASONS["kill"]:
        end = None if runs[-1].end is None else runs[-1].end + 40.0
        yield checker.LATE, changed(history, runs[-1], start=runs[-1].start + 40.0, end=end)


@breaks
def it_is_completed_and_no_handler_returned(history: History, job: Job) -> Broken:
    runs = history.of(job.id)
    if job.state is JobState.COMPLETED:
        calls = [call for call in history.calls if call not in runs or not call.answered]
        yield checker.COMPLETED, history.with_calls(*calls)


@breaks
def what_returned_is_dead(history: History, job: Job) -> Broken:
    if untouched_return(history, job) is not None and job.state is JobState.COMPLETED:
        failed = {"state": JobState.DEAD, "error": REASONS["raise"]}
        yield checker.RETURNED, history.with_job(msgspec.structs.replace(job, **failed))


@breaks
def a_cancelled_job_starts_again(history: History, job: Job) -> Broken:
    for cancel in history.of(job.id, "cancel"):
        start = (cancel.end or 0.0) + 20.0
        again = Call("again", Verb.RUN, start, "w", (job.id,), (), 1, start + 1, Outcome.REFUSED)
        yield checker.STOPPED, history.with_calls(*history.calls, again)
        completed = msgspec.structs.replace(job, state=JobState.COMPLETED)
        yield checker.STOPPED, history.with_job(completed)


@breaks
def a_dead_job_has_no_error(history: History, job: Job) -> Broken:
    if job.state is JobState.DEAD:
        yield checker.DEAD, history.with_job(msgspec.structs.replace(job, error=None))
        yield checker.DEAD, history.with_job(msgspec.structs.replace(job, history=()))


@breaks
def an_attempt_is_not_in_the_story(history: History, job: Job) -> Broken:
    kept = tuple(entry for entry in job.history if entry.number != job.attempts)
    if job.history and job.state is not JobState.CANCELLED:
        yield checker.STORY, history.with_job(msgspec.structs.replace(job, history=kept))


@breaks
def a_state_that_no_one_asked_for(history: History, job: Job) -> Broken:
    if job.state is not JobState.CANCELLED:
        for state in (JobState.CANCELLED, JobState.DISCARDED):
            yield checker.LEGAL, history.with_job(msgspec.structs.replace(job, state=state))
        early = {"state": JobState.DEAD, "attempts": 1, "error": REASONS["kill"]}
        yield checker.LEGAL, history.with_job(msgspec.structs.replace(job, **early))


@breaks
def the_counts_are_wrong(history: History, job: Job) -> Broken:
    wrong = history.end.counted | {job.state.value: 1000}
    yield checker.COUNTS, replace(history, end=history.end._replace(counted=wrong))
    yield checker.SOUND, replace(history, end=history.end._replace(problems=["a gap"]))


@given(histories(), st.data())
def test_a_history_with_one_wrong_event_is_refused(history: History, data: st.DataObject) -> None:
    job = history.end.jobs[data.draw(st.sampled_from(sorted(history.end.jobs)))]
    mutation = data.draw(st.sampled_from(MUTATIONS))
    for promise, broken in mutation(history, job):
        verdict = broken.judged()
        assert promise in {problem.promise for problem in verdict.problems}
        assert [each.promise for each in verdict.promises if not each.held]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_way_to_break_a_history_is_found_in_some_plain_one(
    mutation: Callable[[History, Job], Broken],
) -> None:
    """So that no mutation passes the test above because it never applies."""
    found = 0
    for history in plain():
        for job in history.end.jobs.values():
            for promise, broken in mutation(history, job):
                assert promise in {problem.promise for problem in broken.judged().problems}
                found += 1
    assert found


def test_the_mutations_break_every_promise() -> None:
    broken = {
        promise
        for history in plain()
        for job in history.end.jobs.values()
        for mutation in MUTATIONS
        for promise, _ in mutation(history, job)
    }
    history = next(plain())
    assert broken == {promise.promise for promise in history.judged().promises}


def plain() -> Iterator[History]:
    """One life of each kind."""
    for fates in (["return"], ["kill", "return"], ["raise", "return"], ["raise"] * MAX_ATTEMPTS, ["cancel"]):
        life = Life("j0", 0.0)
        life.enqueue(0)
        for number, fate in enumerate(fates, 1):
            if fate == "cancel":
                life.call("cancel").state = JobState.CANCELLED
            else:
                life.attempt(number, fate)
        last = {"return": JobState.COMPLETED, "raise": JobState.DEAD, "cancel": JobState.CANCELLED}
        job = made("j0", last[fates[-1]], tuple(life.history))
        yield History(tuple(life.calls), of_store({"j0": job}))


# --- what is legal though it looks strange --------------------------------------------------------


def test_a_replay_lets_an_ended_job_run_again() -> None:
    life = Life("j0", 0.0)
    life.enqueue(0)
    life.attempt(1, "return")
    life.call("replay").state = JobState.PENDING
    life.attempt(1, "return")
    job = made("j0", JobState.COMPLETED, tuple(life.history), replay_count=1)
    assert History(tuple(life.calls), of_store({"j0": job})).judged().held


def test_what_only_some_types_record_is_judged_for_them_alone() -> None:
    history = next(plain())
    silent = history.with_calls(*(call for call in history.calls if call.verb != Verb.RUN))
    assert not silent.judged().held
    others = silent.judged(Rules(recording=frozenset({"another"})))
    assert others.held
    assert checker.COMPLETED in {promise.promise for promise in others.promises}
    none = silent.judged(checker.NOT_RECORDED)
    assert none.held
    assert checker.COMPLETED not in {promise.promise for promise in none.promises}


def test_recovery_is_the_time_from_a_kill_to_the_next_start() -> None:
    _, killed, *_ = plain()
    verdict = killed.judged()
    assert verdict.recovery == pytest.approx([2.0])
    assert verdict.injected == {"kills": 1}
    assert verdict.counts["cut off"] == 1


def test_new_work_under_a_unique_name_is_numbered_from_one() -> None:
    life = Life("j0", 0.0)
    life.enqueue(0)
    life.attempt(1, "raise")
    replacing = life.call(Verb.ENQUEUE)
    replacing.jobs, replacing.answer = ("j1",), ("j0",)
    life.attempt(1, "return")
    job = made("j0", JobState.COMPLETED, tuple(life.history))
    history = History(tuple(life.calls), of_store({"j0": job}))
    assert history.judged().held
    assert not history.with_calls(*(call for call in life.calls if call is not replacing)).judged().held


@pytest.mark.parametrize(
    ("counted", "killed", "held"),
    [(11_000, True, True), (11_000, False, False), (9_000, True, False), (13_000, True, False)],
)
def test_only_the_counters_of_killed_workers_may_fall_short(
    counted: int, *, killed: bool, held: bool
) -> None:
    end = of_store({})._replace(counted={"completed": counted}, rows={"completed": 12_000})
    kill = Call("kill", Verb.KILL, 1.0, "w", end=2.0)
    assert History((kill,) if killed else (), end).judged().held is held


# --- the recorder ---------------------------------------------------------------------------------


def test_calls_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    reader, recorder = Reader(tmp_path / "history"), Recorder(tmp_path / "history", "p1")
    with recorder.call(Verb.ENQUEUE, "j1", keys=["k"]) as answer:
        answer.ids = ["j1"]
    with pytest.raises(ValueError, match="no"), recorder.run("j1", 2):
        raise ValueError("no")
    with pytest.raises(OSError, match="away"), recorder.call("cancel", "j1", refused=ValueError):
        raise OSError("away")
    with recorder.fault(Verb.KILL, "p1", job="j1"):
        pass
    enqueue, run, cancel, kill = reader.read()
    assert (enqueue.answer, enqueue.keys, enqueue.process) == (("j1",), ("k",), "p1")
    assert (run.job, run.attempt, run.outcome) == ("j1", 2, Outcome.REFUSED)
    assert (cancel.outcome, cancel.answered) == (Outcome.UNKNOWN, False)
    assert (kill.verb, kill.process, kill.jobs) == ("kill", "p1", ("j1",))
    assert all(call.end is not None and call.end >= call.start for call in reader.calls)
    recorder.close()


def test_a_line_is_read_once_it_is_whole_and_one_that_never_is_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "history"
    reader, recorder = Reader(path), Recorder(path)
    name = recorder.begin(Verb.RUN, ["j1"], attempt=1)
    line = path.read_bytes()
    path.write_bytes(line[:20])
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(line[20:])
    assert [call.job for call in reader.read()] == ["j1"]
    assert list(reader.running()) == [recorder.process]
    with path.open("ab") as file:
        file.write(b'{"at": 17.2, "ca')
    recorder.finish(name, Outcome.ANSWERED)
    assert [call.answered for call in reader.read()] == [True]
    assert reader.running() == {}
    with path.open("ab") as file:
        file.write(b"nonsense\n")
    reader.read()
    assert (reader.torn, reader.ended) == (1, 1)
    recorder.close()


WRITER = """
from tests.history.record import from_environment
recorder = from_environment()
print("ready", flush=True)
for number in range(10**9):
    with recorder.run(f"j{number}", 1):
        pass
"""


def test_processes_that_are_killed_as_they_write_lose_nothing_of_each_other(tmp_path: Path) -> None:
    reader, recorder = Reader(tmp_path / "history"), Recorder(tmp_path / "history")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER],
            cwd=Path(__file__).parents[2],
            env=recorder.environment(name),
            stdout=subprocess.DEVNULL,
        )
        for name in ("a", "b")
    ]
    for name, writer in zip("ab", writers, strict=True):
        until(lambda name=name: sum(call.process == name for call in reader.read()) > 200, "it writes")  # type: ignore[misc] # bound early
        writer.kill()
        writer.wait(PATIENCE)
    reader.read()
    assert reader.torn == 0
    for name in "ab":
        numbers = [int(call.job[1:]) for call in reader.calls if call.process == name]
        assert numbers == list(range(len(numbers)))
    assert sum(len(runs) for runs in reader.running().values()) <= 2
    recorder.close()


@pytest.mark.parametrize(("command", "outcome"), [("true", Outcome.ANSWERED), ("false", Outcome.REFUSED)])
def test_a_command_records_itself(tmp_path: Path, command: str, outcome: Outcome) -> None:
    recorder = Recorder(tmp_path / "history")
    environment = recorder.environment("w1") | {
        "WINDLASS_JOB_ID": "j1",
        "WINDLASS_ATTEMPT": "3",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(["sh", "-c", shell_command(command)], env=environment, check=False)
    [run] = Reader(recorder.path).read()
    assert (run.process, run.job, run.attempt, run.outcome) == ("w1", "j1", 3, outcome)
    assert done.returncode == (outcome is Outcome.REFUSED)
    recorder.close()


def test_without_a_file_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HISTORY_FILE", raising=False)
    recorder = from_environment()
    threads = [threading.Thread(target=lambda: recorder.begin(Verb.RUN)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    recorder.close()


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "nan", "many", ""])
def test_an_option_that_counts_takes_whole_numbers_above_zero(text: str) -> None:
    assert result.count("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match="whole number above 0"):
        result.count(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "long", ""])
def test_an_option_that_measures_takes_finite_numbers_above_zero(text: str) -> None:
    assert result.positive("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match="number above 0"):
        result.positive(text)
