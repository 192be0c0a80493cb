"""Is every metric what the tables say, whatever has happened? After histories that Hypothesis thinks of."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.conftest import ENGINES
from tests.conformance.scene import CANCELLED, DEAD, GIVEN_BACK, LATER, MAIL, REPORT, SNOOZED
from tests.observe.scene import Scrape, Stage, failed, unread
from tests.observe.tables import Tables
from windlass.clock import ManualClock
from windlass.job import JobState, Reason
from windlass.observe import metrics
from windlass.outcome import Done, Outcome
from windlass.store.fleet import PoolInfo, Vitals
from windlass.store.flow import BreakerState
from windlass.store.jobs import Filter
from windlass.store.oncall import Verdict

NAMED = ("acme", "globex")
ENDS: dict[str, Outcome] = {
    "done": Done(),
    "later": LATER,
    "out of memory": failed(Reason.MEMORY_LIMIT),
    "dead": DEAD,
    "cancelled": CANCELLED,
    "snoozed": SNOOZED,
    "given back": GIVEN_BACK,
    "left": unread(),
    "left for a while": unread(timedelta(seconds=20)),
}
_UNCOUNTED = ("given back", "left", "left for a while")

# --- histories ----------------------------------------------------------------------------------

numbers = st.integers(1, 4)
types = st.sampled_from([MAIL, REPORT])
steps = st.one_of(
    st.tuples(
        st.just("enqueue"),
        numbers,
        types,
        st.integers(0, 10),
        st.sampled_from(["", "acme", "globex", "initech"]),
        st.sampled_from([0, 0, 0, 100]),
    ),
    st.tuples(st.just("work"), numbers, st.sampled_from(sorted(ENDS)), st.sampled_from(["", "1.0", "1.1"])),
    st.tuples(st.just("hold"), numbers, st.sampled_from(["worker-1", "worker-2"])),
    st.tuples(
        st.just("act"),
        st.sampled_from(
            [
                ("bury", JobState.PENDING),
                ("cancel", JobState.PENDING),
                ("replay", JobState.DEAD),
                ("discard", JobState.DEAD),
            ]
        ),
    ),
    st.tuples(st.just("shut"), types, st.sampled_from(["pause", "resume", "open", "close"])),
    st.tuples(st.just("check"), st.sampled_from([*Verdict])),
    st.tuples(st.just("lose")),
    st.tuples(st.just("look")),
    st.tuples(st.just("wait"), st.sampled_from([1, 5, 25, 70])),
)


class Story:
    """Lets things happen on a stage, and counts what leaves no row behind."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.stage.ops.set_settings({"metrics.tenants": ", ".join(NAMED)})
        self.stage.follow()
        # Snoozes are forgotten with a replay, and what is given back leaves no trace.
        self.done: Counter[tuple[str, str]] = Counter()
        self.snoozes: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def tell(self, told: Iterable[tuple[Any, ...]]) -> None:
        for verb, *args in told:
            self.stage.beat()
            getattr(self, verb)(*args)

    def enqueue(self, count: int, job_type: str, priority: int, tenant: str, delay: int) -> None:
        later = {"delay": timedelta(seconds=delay)} if delay else {}
        self.stage.enqueue(count, type=job_type, priority=priority, tenant=tenant, **later)

    def work(self, count: int, end: str, release: str) -> None:
        leases = self.stage.claim(count)
        ran = None if end in _UNCOUNTED else 1.5
        check_in = timedelta(seconds=20) if end == "done" else None
        self.stage.settle(leases, ENDS[end], ran, check_in=check_in, release=release)
        self.done.update((lease.job.type, end) for lease in leases)
        if end == "snoozed":
            attempt = {"outcome": end, "seconds": ran, "app": release}
            jobs = ({"type": lease.job.type, "tenant": lease.job.tenant} for lease in leases)
            self.snoozes += [(job, attempt) for job in jobs]

    def hold(self, count: int, worker: str) -> None:
        if worker not in {each.id for each in self.stage.store.workers() if each.state == "running"}:
            self.stage.worker(worker, app="1.1")
        pools = {"threads": PoolInfo(6, busy=1), "reports": PoolInfo(4, busy=count - 1, held=1)}
        self.stage.store.beat(worker, Vitals(busy=count, pools=pools))
        self.stage.claim(count, worker=worker)

    def act(self, what: tuple[str, JobState]) -> None:
        verb, state = what
        for job in self.stage.store.find(Filter(states=(state,)), limit=2).jobs:
            getattr(self.stage.store, verb)(job.id)

    def shut(self, job_type: str, how: str) -> None:
        store = self.stage.store
        if how in ("open", "close"):
            store.set_breaker(job_type, BreakerState.OPEN if how == "open" else BreakerState.CLOSED)
        else:
            getattr(store, how)(job_type)

    def check(self, verdict: Verdict) -> None:
        for check in self.stage.store.take_checks([MAIL, REPORT], limit=2, again=timedelta(minutes=5)):
            assert self.stage.store.end_check(check, verdict)

    def lose(self) -> None:
        """A worker is gone, and what it held is taken back."""
        self.stage.reap("worker-2")

    def look(self) -> None:
        self.stage.look()

    def wait(self, seconds: int) -> None:
        self.stage.clock.advance(seconds)


# --- what must be equal -------------------------------------------------------------------------

Values = Mapping[tuple[str, ...], float]
Expected = Callable[[Tables, Story], Values]


def _by(
    pairs: Iterable[tuple[Any, Any]], key: Callable[[Any, Any], tuple[str, ...]]
) -> Counter[tuple[str, ...]]:
    return Counter(key(job, attempt) for job, attempt in pairs)


def _ran(pairs: Iterable[tuple[Any, Any]], key: Callable[[Any, Any], tuple[str, ...]]) -> Values:
    found: dict[tuple[str, ...], float] = {}
    for job, attempt in pairs:
        of = key(job, attempt)
        found[of] = found.get(of, 0.0) + (attempt.get("seconds") or 0.0)
    return found


def _type(job: Any, _: Any) -> tuple[str, ...]:
    return (job["type"],)


def _release(job: Any, attempt: Any) -> tuple[str, ...]:
    return (job["type"], attempt["app"])


def _tenant(job: Any, _: Any) -> tuple[str, ...]:
    return (job["tenant"] if job["tenant"] in NAMED else "other",)


def _released(tables: Tables) -> Iterable[tuple[Any, Any]]:
    return (pair for pair in tables.tries() if pair[1].get("app"))


def _of_runs(tables: Tables, _: Story) -> Counter[tuple[str, ...]]:
    return _by(tables.runs(), _type)


def _attempts(tables: Tables, _: Story) -> Counter[tuple[str, ...]]:
    taken: Counter[tuple[str, ...]] = Counter()
    for job in tables.ended:
        if job["state"] == "completed":
            taken[job["type"],] += job["attempts"]
    return taken


def _done(*ends: str) -> Expected:
    def count(_: Tables, story: Story) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for (name, end), number in story.done.items():
            found[name,] += number if end in ends else 0
        return found

    return count


def _alive(tables: Tables) -> list[Any]:
    living = [each for each in tables.workers if each["state"] in ("running", "draining")]
    return [each for each in living if tables.seconds_since(each["beat_at"]) <= 10]


def _pools(tables: Tables) -> list[tuple[str, dict[str, int]]]:
    return [pool for row in _alive(tables) for pool in json.loads(row["pools"]).items()]


def _pool_slots(tables: Tables, _: Story) -> Values:
    found: Counter[tuple[str, ...]] = Counter()
    for name, counts in _pools(tables):
        for state, of in (("all", "slots"), ("busy", "busy"), ("held", "held")):
            found[name, state] += counts[of]
    return found


def _newest(tables: Tables, _: Story) -> Values:
    heard = sorted((row["first_at"], row["version"]) for row in tables.releases)
    return {(heard[-1][1],): 1} if heard else {}


def _missing(tables: Tables) -> list[Any]:
    """Here at most one dies, and every other serves the same types."""
    dead = [each for each in tables.workers if each["state"] == "dead" and not each["drain"]]
    assert len(dead) <= 1
    others = [each for each in tables.workers if each not in dead]
    return [each for each in dead if all(other["started_at"] < each["beat_at"] for other in others)]


def _states(tables: Tables, _: Story) -> Values:
    living = [each for each in tables.workers if each["state"] in ("running", "draining")]
    alive = _alive(tables)
    return {
        ("alive",): len(alive),
        ("draining",): sum(each["state"] == "draining" for each in alive),
        ("deaf",): sum(each["deaf"] for each in alive),
        ("silent",): len(living) - len(alive),
        ("missing",): len(_missing(tables)),
    }


EXPECTED: dict[str, Expected] = {
    "windlass_jobs_enqueued_total": lambda t, _: Counter((job["type"],) for job in t.everything),
    "windlass_jobs_started_total": _of_runs,
    "windlass_jobs_completed_total": lambda t, _: t.ends("completed"),
    "windlass_jobs_failed_total": lambda t, _: _by(t.failures(), _type),
    "windlass_jobs_retried_total": lambda t, _: _by(
        (pair for pair in t.attempts() if pair[1]["outcome"] == "retry"), _type
    ),
    # Whoever died is dead, was sent back, or was closed for good.
    "windlass_jobs_dead_total": lambda t, _: t.ends("dead") + t.ends("discarded") + t.replays(),
    "windlass_jobs_cancelled_total": lambda t, _: t.ends("cancelled"),
    "windlass_jobs_discarded_total": lambda t, _: t.ends("discarded"),
    "windlass_jobs_replayed_total": lambda t, _: t.replays(),
    "windlass_jobs_snoozed_total": _done("snoozed"),
    "windlass_jobs_released_total": _done(*_UNCOUNTED),
    "windlass_jobs_reaped_total": lambda t, _: _by(
        (pair for pair in t.failures() if pair[1]["error"]["reason"] == "worker_lost"), _type
    ),
    "windlass_checks_matched_total": lambda t, _: {(row["type"],): row["matched"] for row in t.verdicts},
    "windlass_checks_mismatched_total": lambda t, _: {
        (row["type"],): row["mismatched"] for row in t.verdicts
    },
    "windlass_workers_lost_total": lambda t, _: {(): sum(row["state"] == "dead" for row in t.workers)},
    "windlass_job_run_seconds_count": _of_runs,
    "windlass_job_wait_seconds_count": _of_runs,
    "windlass_job_run_seconds_sum": lambda t, s: {of: 1.5 * n for of, n in _of_runs(t, s).items()},
    "windlass_job_end_to_end_seconds_count": lambda t, _: t.ends("completed"),
    "windlass_job_attempts_count": lambda t, _: t.ends("completed"),
    "windlass_job_attempts_sum": _attempts,
    "windlass_job_failures_total": lambda t, _: _by(
        t.failures(), lambda job, attempt: (job["type"], attempt["error"]["reason"])
    ),
    "windlass_job_errors_total": lambda t, _: _by(
        t.failures(),
        lambda job, attempt: (
            job["type"],
            (attempt["error"].get("class") or "").rpartition(".")[2] or attempt["error"]["reason"],
        ),
    ),
    "windlass_release_duration_seconds_sum": lambda t, _: _ran(_released(t), _release),
    "windlass_release_attempts_total": lambda t, _: _by(_released(t), _release),
    "windlass_release_failures_total": lambda t, _: _by(
        (pair for pair in t.failures() if pair[1].get("app")), _release
    ),
    "windlass_release_run_seconds_total": lambda t, _: _ran(_released(t), _release),
    "windlass_tenant_attempts_total": lambda t, _: _by(t.tries(), _tenant),
    "windlass_tenant_failures_total": lambda t, _: _by(t.failures(), _tenant),
    "windlass_tenant_run_seconds_total": lambda t, _: _ran(t.tries(), _tenant),
    "windlass_tenant_completed_total": lambda t, _: Counter(
        _tenant(job, None) for job in t.ended if job["state"] == "completed"
    ),
    "windlass_tenant_jobs": lambda t, _: t.of_tenant(NAMED),
    "windlass_tenant_oldest_due_age_seconds": lambda t, _: t.oldest_of_tenants(NAMED),
    "windlass_queue_depth": lambda t, _: t.depths(),
    "windlass_queue_due": lambda t, _: t.of_type("due"),
    "windlass_oldest_due_age_seconds": lambda t, _: t.oldest("due", "run_at", "type", "priority"),
    "windlass_jobs_processing": lambda t, _: t.of_type("processing", "stuck"),
    "windlass_jobs_stuck": lambda t, _: t.of_type("stuck"),
    "windlass_jobs_unreadable": lambda t, _: t.of_type("unreadable"),
    "windlass_dlq_depth": lambda t, _: t.of_type("dead"),
    "windlass_dlq_oldest_age_seconds": lambda t, _: t.oldest("dead", "finished_at", "type"),
    "windlass_dlq_poison": lambda t, _: Counter(
        (job["type"],) for job in t.jobs if t.view(job) == "dead" and job["replay_count"] >= 3
    ),
    "windlass_workers": _states,
    "windlass_workers_by_version": lambda t, _: Counter((row["app"] or row["version"],) for row in _alive(t)),
    "windlass_release_newest": _newest,
    "windlass_pool_workers": lambda t, _: Counter((name,) for name, _ in _pools(t)),
    "windlass_pool_slots": _pool_slots,
    "windlass_slots": lambda t, _: {
        ("all",): sum(row["slots"] for row in _alive(t)),
        ("busy",): sum(row["busy"] for row in _alive(t)),
        ("held",): sum(row["held"] for row in _alive(t)),
    },
    "windlass_type_workers": lambda t, _: {(MAIL,): len(_alive(t)), (REPORT,): len(_alive(t))},
    "windlass_type_paused": lambda t, _: {(row["type"],): 1 for row in t.pauses},
    "windlass_breaker_open": lambda t, _: {(row["name"],): int(row["state"] == "open") for row in t.breakers},
    "windlass_checks_waiting": lambda t, _: Counter((row["type"],) for row in t.checks),
    "windlass_tick_age_seconds": lambda t, _: {(row["name"],): t.seconds_since(row["at"]) for row in t.ticks},
    "windlass_sample_age_seconds": lambda *_: {(): 0.0},
    "windlass_store_up": lambda *_: {(): 1.0},
}
# No table has them: what was measured or refused in a process, limits of settings, what follows from others.
ELSEWHERE = {
    "windlass_results_late_total",
    "windlass_checks_hung_total",
    "windlass_leases_renewed_total",
    "windlass_leases_lost_total",
    "windlass_worker_restarts_total",
    "windlass_worker_place_restarts_total",
    "windlass_worker_oom_kills_total",
    "windlass_records_pruned_total",
    "windlass_store_errors_total",
    "windlass_claims_total",
    "windlass_jobs_confirmed_total",
    "windlass_queue_swings",
    "windlass_enqueue_seconds",
    # By producers: tests/surface/test_queue_enqueue.py.
    "windlass_enqueue_call_seconds",
    "windlass_settle_seconds",
    "windlass_claim_seconds",
    "windlass_claim_jobs",
    "windlass_enqueue_requests_total",
    # Over HTTP alone: tests/server/test_observing.py.
    "windlass_http_refusals_total",
    "windlass_service_enqueued_total",
    "windlass_service_requests_total",
    "windlass_tenant_wait_seconds_total",
    "windlass_sample_duration_seconds",
    # To the day on PostgreSQL: tests/conformance/test_history.py.
    "windlass_archive_oldest_age_seconds",
    "windlass_archive_kept_seconds",
    "windlass_desired_workers",
}


def test_every_metric_is_compared_or_said_not_to_be() -> None:
    compared = {name.removesuffix("_count").removesuffix("_sum") for name in EXPECTED}
    ours = {metric.name for metric in metrics.METRICS} - {metric.name for metric in metrics.OWN}
    assert compared | ELSEWHERE == ours
    assert not compared & ELSEWHERE


def found(scrape: Scrape, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by its labels' values; zeros say the same as nothing."""
    return {tuple(labels.values()): value for labels, value in scrape.get(name, ()) if value}


@pytest.mark.parametrize("engine", ["sqlite", "postgres-15"])
@settings(max_examples=10)
@given(told=st.lists(steps, min_size=10, max_size=40))
def test_every_metric_is_what_the_tables_say(engine: str, told: list[tuple[Any, ...]]) -> None:
    with (
        ENGINES[engine]() as url,
        contextlib.closing(Stage(url, ManualClock())) as stage,
    ):
        story = Story(stage)
        story.tell(told)
        stage.look()
        scrape = stage.scrape()
        tables = Tables(url, stage.clock.micros(), story.snoozes)
        for name, expected in EXPECTED.items():
            wanted = {of: value for of, value in expected(tables, story).items() if value}
            assert found(scrape, name) == pytest.approx(wanted), name
