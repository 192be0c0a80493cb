"""Does a line of words mean what it says, whatever stands in it?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.checks import InvalidValues
from windlass.clock import ManualClock, uuid7
from windlass.errors import InvalidValue
from windlass.job import JobState
from windlass.ops.search import count_within, find_within, read_filter, read_query
from windlass.store.jobs import Counted, Filter, Page


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts)
paths = st.lists(names, min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize(
    "line",
    [
        *("payload.size>100", "payload.size<=1", "payload.size=100", "payload.a.b!=1"),
        *("payload.n:>3", "payload.n:<=3", "payload.n:!=3", "payload.n:3..5", "payload.n:..5"),
    ],
)
def test_a_comparison_that_is_no_equality_is_refused_and_not_taken_for_a_key(line: str) -> None:
    with pytest.raises(InvalidValue, match=r"an equality such as payload\.size:100"):
        read_query(line)


@pytest.mark.parametrize(
    "condition", ["payload.size>100", "payload.size>=100", "payload.size!=1", "payload.n=3..5"]
)
def test_a_condition_that_is_no_equality_is_refused(condition: str) -> None:
    with pytest.raises(InvalidValue, match=r"an equality such as payload\.size=100: there are no ranges"):
        read_filter(where=[condition])


@pytest.mark.parametrize("line", ['tenant:""', 'key:""', 'error:""', 'type:""', '""'])
def test_an_empty_value_is_refused(line: str) -> None:
    with pytest.raises(InvalidValue, match="must be a text that is not empty"):
        read_query(line)


def test_states_are_read_in_any_case() -> None:
    assert read_filter(states=["DEAD", "Pending"]).states == (JobState.DEAD, JobState.PENDING)
    assert read_query("state:Scheduled").view == "scheduled"


@given(
    types=st.lists(names, max_size=3),
    states=st.lists(st.sampled_from(JobState), max_size=3),
    once=st.fixed_dictionaries({}, optional=dict.fromkeys(("tenant", "key", "error"), texts.filter(bool))),
    older=st.none() | st.integers(0, 10**6),
    payload=st.dictionaries(paths, plain, max_size=3),
    ids=st.lists(st.uuids().map(str), max_size=2),
    gap=st.sampled_from([" ", "   ", "\t", "\n"]),
)
def test_whatever_is_written_is_what_is_read(
    types: list[str],
    states: list[JobState],
    once: dict[str, str],
    older: int | None,
    payload: Mapping[tuple[str, ...], Any],
    ids: list[str],
    gap: str,
) -> None:
    words = [f"type:{name}" for name in types] + [f"state:{state}" for state in states]
    words += [f"{name}:{quoted(text)}" for name, text in once.items()]
    words += [f"payload.{'.'.join(path)}:{json.dumps(value)}" for path, value in payload.items()]
    words += [] if older is None else [f"older:{older}s"]
    words += ids
    assert read_query(gap.join(words)) == Filter(
        types=tuple(types),
        states=tuple(states),
        tenant=once.get("tenant"),
        key=once.get("key"),
        error=once.get("error"),
        older_than=None if older is None else timedelta(seconds=older),
        payload=dict(payload),
        ids=tuple(ids),
    )


@given(st.text(max_size=60))
def test_any_line_is_read_or_refused_in_one_sentence(line: str) -> None:
    with contextlib.suppress(InvalidValue):
        assert isinstance(read_query(line), Filter)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", Filter()),
        ("type:a,b state:dead,pending", Filter(types=("a", "b"), states=(JobState.DEAD, JobState.PENDING))),
        ("state:retrying", Filter(view="retrying")),
        ("payload.a.b:1 payload.c:x", Filter(payload={("a", "b"): 1, ("c",): "x"})),
        ('payload.a:">3"', Filter(payload={("a",): ">3"})),
        ("payload.csv", Filter(key="payload.csv")),
        ('payload.a:"1"', Filter(payload={("a",): "1"})),
        ("error:=TimeoutError older:1h30m", Filter(error="=TimeoutError", older_than=timedelta(minutes=90))),
        ("order-17", Filter(key="order-17")),
        ("key:order:17", Filter(key="order:17")),
    ],
)
def test_what_people_type(line: str, found: Filter) -> None:
    assert read_query(line) == found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("typ:x", "one of type:, state:"),
        ("type:", "followed by a value"),
        ('error:"half', "quotes are closed"),
        ("state:done", "state must be one of"),
        ("state:due state:dead", "alone"),
        ("older:soon", "older must be a duration"),
        ("id:7", "which is a UUID"),
        ("tenant:a tenant:b", "only once"),
        ("payload.a:[1]", "plain value"),
        ("one two", "one key only"),
        ("payload.:3", "a field of the payload and its value"),
        ("payload.a..b:3", "a field of the payload and its value"),
    ],
)
def test_what_is_wrong_is_named(line: str, told: str) -> None:
    with pytest.raises(InvalidValue, match=told.replace("(", r"\(")):
        read_query(line)


def test_everything_that_is_wrong_with_a_line_is_named() -> None:
    with pytest.raises(InvalidValues) as refused:
        read_query("state:foo,bar typ:boom type: older:soon payload.n:>3")
    wrong = [(each.field, each.value) for each in refused.value.problems if isinstance(each, InvalidValue)]
    assert wrong == [
        *(("q", "typ:boom"), ("q", "type:"), ("q", "payload.n:>3")),
        *(("older", "soon"), ("state", "foo"), ("state", "bar")),
    ]


class _Slow:
    """A store in which a window takes as long as it is large; it remembers what it was asked."""

    def __init__(self, clock: ManualClock, numbers: int) -> None:
        self.clock = clock
        self.left = numbers
        self.windows: list[int] = []

    def find(
        self, where: Filter, *, limit: int = 50, cursor: str | None = None, window: int | None = None
    ) -> Page:
        assert window is not None
        assert cursor in {None, str(self.left)}
        self.windows.append(window)
        self.clock.advance(window / 100_000)
        self.left = max(0, self.left - window)
        return Page([], str(self.left) if self.left else None)

    def count_next(self, where: Filter, *, window: int, cursor: str | None = None) -> Counted:
        return Counted(window // 10, self.find(where, cursor=cursor, window=window).next)

    def count(self, where: Filter, *, limit: int) -> int:
        assert where.states == (JobState.DEAD,)
        return min(limit, 700)


def test_a_count_that_takes_long_ends_in_time_and_says_that_there_are_more() -> None:
    clock = ManualClock()
    where, within = Filter(tenant="acme"), timedelta(seconds=2)
    store: Any = _Slow(clock, 1_000_000)
    found, every = count_within(store, where, limit=1_000_000, within=within, clock=clock)
    assert (found, every) == (sum(store.windows) // 10, False)
    assert clock.monotonic() < 3
    for limit, counted in ((1_000_000, (500, True)), (300, (300, False))):
        few: Any = _Slow(clock, 4_000)
        assert count_within(few, where, limit=limit, within=within, clock=clock) == counted
    # What an index finds is counted at once.
    dead = Filter(states=(JobState.DEAD,))
    assert count_within(store, dead, limit=1_000, within=within, clock=clock) == (700, True)
    assert count_within(store, dead, limit=500, within=within, clock=clock) == (500, False)


def test_a_search_that_finds_nothing_ends_in_time_and_can_be_gone_on_with() -> None:
    clock = ManualClock()
    store: Any = _Slow(clock, 1_000_000)
    options: dict[str, Any] = {"limit": 50, "within": timedelta(seconds=2), "clock": clock}
    page = find_within(store, Filter(key=uuid7()), cursor=None, **options)
    assert (page.jobs, page.next) == ([], str(store.left))
    assert clock.monotonic() < 3
    # Windows grow while they are quick, and no further.
    assert max(store.windows) <= 80_000
    while page.next is not None:
        page = find_within(store, Filter(key="x"), cursor=page.next, **options)
    assert store.left == 0
