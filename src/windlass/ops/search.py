"""Read filters and search lines, and search in bounded time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from windlass.checks import TEXT, Problems, storable
from windlass.clock import Clock
from windlass.connect import Front
from windlass.duration import parse_duration
from windlass.errors import must_be
from windlass.job import Job, JobState, View
from windlass.store.jobs import Filter, Page
from windlass.store.store import Store

_LONGEST_AGO = timedelta(days=36_500)
NOT_EMPTY = "a text that is not empty"
STATES = tuple(each.value for each in (*JobState, *View))


def read_filter(
    *,
    types: Iterable[str] = (),
    states: Iterable[str] = (),
    tenant: str | None = None,
    key: str | None = None,
    error: str | None = None,
    older_than: timedelta | None = None,
    where: Iterable[str | tuple[tuple[str, ...], Any]] = (),
    ids: Iterable[str] = (),
) -> Filter:
    """The filter that such words ask for. A state may also be a view, which then stands alone."""
    problems = Problems()
    chosen, view = problems.tried(_read_states, tuple(states)) or ((), None)
    read = [problems.tried(read_condition, each) if isinstance(each, str) else each for each in where]
    conditions = dict(each for each in read if each is not None)
    wanted = tuple(types)
    texts = [("tenant", tenant), ("key", key), ("error", error), *(("type", each) for each in wanted)]
    texts += [("where", ".".join(path) + f"={value}") for path, value in conditions.items()]
    for field, text in texts:
        with problems:
            if text == "":
                # Such as an unset variable of a shell: neither every job nor none is meant.
                raise must_be(field, text, NOT_EMPTY)
            # What no store keeps could not be found.
            if text is not None and not storable(text):
                raise must_be(field, text, TEXT)
    with problems:
        if older_than is not None and older_than > _LONGEST_AGO:
            raise must_be("older_than", f"{older_than.days}d", f"at most {_LONGEST_AGO.days}d")
    problems.check()
    return Filter(
        ids=tuple(ids),
        types=wanted,
        states=chosen,
        view=view,
        tenant=tenant,
        key=key,
        error=error,
        older_than=older_than,
        payload=conditions,
    )


def check_states(names: Sequence[str], _field: str) -> Sequence[str]:
    """Names of states, or of one view, or InvalidValue."""
    _read_states(tuple(names))
    return names


def check_conditions(texts: list[str], _field: str) -> list[str]:
    """Conditions such as payload.user.id=42, or InvalidValue."""
    problems = Problems()
    for text in texts:
        problems.tried(read_condition, text)
    problems.check()
    return texts


def check_query(text: str, _field: str) -> str:
    """A line such as type:mail state:dead, or InvalidValue."""
    read_query(text)
    return text


def _read_states(names: tuple[str, ...]) -> tuple[tuple[JobState, ...], str | None]:
    """Either states, or a view, in any case."""
    names, problems = tuple(name.lower() for name in names), Problems()
    for name in names:
        with problems:
            if name not in STATES:
                raise must_be("state", name, "one of " + ", ".join(STATES))
    problems.check()
    views = [name for name in names if name in set(View)]
    if views and len(names) > 1:
        raise must_be("state", ", ".join(names), f"several states, or one of {', '.join(View)} alone")
    if views:
        return (), views[0]
    return tuple(JobState(name) for name in names), None


def read_condition(text: str) -> tuple[tuple[str, ...], Any]:
    """A field of the payload and its value: payload.user.id=42. What is not JSON is taken as text."""
    path, equals, value = text.partition("=")
    if _RANGE.match(text) or (equals and _SPAN.match(value)):
        raise must_be("where", text, "an equality such as payload.size=100: there are no ranges")
    names = tuple(part.strip() for part in path.split("."))
    if not equals or len(names) <= 1 or names[0] != "payload" or not all(names):
        raise must_be("where", text, "a condition such as payload.user.id=42")
    try:
        wanted = json.loads(value)
    except (ValueError, RecursionError):
        wanted = value
    if isinstance(wanted, dict | list):
        raise must_be("where", text, "a comparison with a plain value: only plain values can be compared")
    return names[1:], wanted


# What may stand before a colon, with what it means; for who completes a line.
WORDS = {
    "type:": "jobs of a type; several with commas between them, or repeated",
    "state:": "a state, or one view: due, scheduled, retrying, waiting, unreadable, stuck",
    "tenant:": "jobs of a tenant",
    "key:": "the job with a key",
    "error:": "a text in the last error; =Name: of exactly this class or reason",
    "payload.": "a field of the payload, as in payload.user.id:42",
    "older:": "enqueued longer ago than this, such as 1h",
    "id:": "one job; an id alone will do",
}
# Long enough for whatever an index finds, short enough for who waits at a screen.
WITHIN = timedelta(seconds=2)
_FIRST_WINDOW = 5_000
_LARGEST_WINDOW = 500_000
# A window that takes longer than this is not made larger, and one that takes far longer is made smaller.
_QUICK_SECONDS = 0.1


def read_query(text: str) -> Filter:
    """The filter that a line asks for; InvalidValue names the part that is wrong. Nothing: every job."""
    found, problems = _Found(), Problems()
    with problems:
        for term in _terms(text):
            problems.tried(_take, found, term)
    older = found.once.pop("older", None)
    with problems:
        chosen = read_filter(
            types=found.types,
            states=found.states,
            older_than=None if older is None else problems.tried(parse_duration, older, "older"),
            where=found.payload,
            ids=found.ids,
            **found.once,
        )
    problems.check()
    return chosen


def find_within(
    store: Front, where: Filter, *, limit: int, cursor: str | None, within: timedelta, clock: Clock
) -> Page:
    """A page of jobs, or as much of it as is found in time: `next` then goes on where the search has come to.

    Numbers are looked through from the newest down, some thousands at a time, so that no statement is long.
    """
    if _is_indexed(where):
        return store.find(where, limit=limit, cursor=cursor)
    jobs: list[Job] = []
    for window in _windows(within, clock):
        page = store.find(where, limit=limit - len(jobs), cursor=cursor, window=window)
        jobs += page.jobs
        cursor = page.next
        if cursor is None or len(jobs) >= limit:
            break
    return Page(jobs, cursor)


def count_within(
    store: Store, where: Filter, *, limit: int, within: timedelta, clock: Clock
) -> tuple[int, bool]:
    """How many match, up to `limit`, and whether that is all: False if counting was not over in time."""
    if _is_indexed(where):
        found = store.count(where, limit=limit)
        return found, found < limit
    total = 0
    cursor: str | None = None
    for window in _windows(within, clock):
        counted = store.count_next(where, window=window, cursor=cursor)
        total, cursor = total + counted.count, counted.next
        if cursor is None or total >= limit:
            break
    return min(total, limit), cursor is None and total < limit


def _windows(within: timedelta, clock: Clock) -> Iterator[int]:
    """How much to look through next, so that no statement is long and no time is lost between them."""
    began, window = clock.monotonic(), _FIRST_WINDOW
    deadline = began + within.total_seconds()
    while True:
        yield window
        ended = clock.monotonic()
        if ended >= deadline:
            return
        if (took := ended - began) < _QUICK_SECONDS:
            window = min(window * 4, _LARGEST_WINDOW)
        elif took > 2 * _QUICK_SECONDS:
            window = max(window // 4, _FIRST_WINDOW)
        began = ended


def _is_indexed(where: Filter) -> bool:
    """Whether an index leads to what is looked for, and to nothing else."""
    dead = Filter(states=(JobState.DEAD,), types=where.types)
    return where == dead or bool(where.ids or where.batch)


class _Term(NamedTuple):
    """A part of the line. No name: a word that stands alone."""

    name: str
    value: str
    quoted: bool


class _Found(msgspec.Struct):
    """What the terms amount to."""

    types: list[str] = []
    states: list[str] = []
    ids: list[str] = []
    once: dict[str, str] = {}
    payload: list[tuple[tuple[str, ...], Any]] = []


def _terms(text: str) -> Iterator[_Term]:
    at = 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr] # it matches nothing at least
        if at == len(text):
            return
        found = _TERM.match(text, at)
        if found is None:
            allowed = f"words such as {' '.join(WORDS)} each with a value behind it; quotes are closed"
            raise must_be("q", text[at:], allowed)
        at = found.end()
        quoted = found["quoted"] is not None
        value = _unquoted(found["quoted"]) if quoted else found["plain"] or ""
        yield _Term(found["name"] or "", value, quoted)


def _unquoted(text: str) -> str:
    """What stands between quotes, as JSON reads it; what is typed by hand and is no JSON is itself."""
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _take(found: _Found, term: _Term) -> None:
    if not term.value and not term.quoted:
        raise must_be("q", f"{term.name}:", "followed by a value")
    match term.name:
        case "":
            _take_alone(found, term.value)
        case "type":
            found.types += [term.value] if term.quoted else [part for part in term.value.split(",") if part]
        case "state":
            found.states += [part for part in term.value.split(",") if part]
        case "id":
            if not _UUID.fullmatch(term.value):
                raise must_be("q", f"id:{term.value}", "id: and a job's id, which is a UUID")
            found.ids.append(term.value)
        case "tenant" | "key" | "error" | "older":
            if term.name in found.once:
                raise must_be("q", f"{term.name}:{term.value}", f"{term.name}: only once")
            found.once[term.name] = term.value
        case name if name.startswith("payload."):
            found.payload.append(_payload(term))
        case name:
            raise must_be("q", f"{name}:{term.value}", "one of " + ", ".join(WORDS))


def _payload(term: _Term) -> tuple[tuple[str, ...], Any]:
    said = f"{term.name}:{term.value}"
    if not all(term.name.split(".")):
        raise must_be("q", said, _FIELD)
    if not term.quoted and _SPAN.match(term.value):
        raise must_be("q", said, _EQUAL)
    written = msgspec.json.encode(term.value).decode() if term.quoted else term.value
    return read_condition(f"{term.name}={written}")


def _take_alone(found: _Found, word: str) -> None:
    """A job's id, or else a key."""
    if _RANGE.match(word) or _EQUALITY.match(word):
        raise must_be("q", word, _EQUAL)
    if word.startswith("payload.:"):
        raise must_be("q", word, _FIELD)
    if _UUID.fullmatch(word):
        found.ids.append(word)
    elif "key" in found.once:
        raise must_be("q", word, "one key only, or words such as " + " ".join(WORDS))
    else:
        found.once["key"] = word


_SPACE = re.compile(r"\s*")
_TERM = re.compile(
    r"""(?:(?P<name>type|state|tenant|key|error|older|id|payload\.[^\s":=]+|[a-z_]+):)?+
        (?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<plain>[^\s"][^\s]*)?)(?=\s|$)""",
    re.VERBOSE | re.DOTALL,
)
# A comparison of a field, where only equality is understood.
_RANGE = re.compile(r"payload\.[^=<>!]+(<|>|!=)")
_EQUAL = "an equality such as payload.size:100: there are no ranges"
_FIELD = "a field of the payload and its value, as in payload.user.id:42"
# A value that reads as a range: >3, <=3, 3..5. In quotes it is a text.
_SPAN = re.compile(r"[<>]|!=|-?[\d.]*\.\.-?[\d.]*$")
_EQUALITY = re.compile(r"payload\.[^=\s]+=")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
