"""Does an exception deserve another attempt? What a type's rules say, and what holds without them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

log = logging.getLogger("windlass.rules")

Rule = Literal["retry", "fatal", "cancel"]
RULES: tuple[Rule, ...] = ("retry", "fatal", "cancel")
# Exception classes with their rules, or a function that is asked about each exception.
RuleFunction = Callable[[BaseException], Rule | None]
Rules = Mapping[type[BaseException], Rule] | RuleFunction

_CLIENT_ERRORS = range(400, 500)
_HTTP_ERRORS = range(400, 600)
# Request Timeout, Too Early, Too Many Requests: the same request may succeed later.
_PASSING = frozenset({408, 425, 429})
_SAYS_WHEN = frozenset({429, 503})
# However long a server wants to be left alone, a job that waits for a day is forgotten.
_LONGEST_RETRY_AFTER = 3600


def ask(rules: RuleFunction, exception: BaseException, fields: Mapping[str, Any]) -> Rule | None:
    """What a type's function says about an exception; None if it does not say, or fails itself."""
    try:
        rule: object = rules(exception)
    except BaseException:  # wall: a mistake in the function must not lose the job
        log.exception("rules.failed", extra={**fields, "exception": type(exception).__qualname__})
        return None
    for known in RULES:
        if rule == known:
            return known
    if rule is not None:
        allowed = "rules= must return one of retry, fatal, cancel or None"
        extra = {**fields, "exception": type(exception).__qualname__, "returned": repr(rule)[:200]}
        log.error("rules.wrong", extra={**extra, "note": f"{allowed}; the defaults hold"})
    return None


def usual(exception: BaseException) -> tuple[Rule, timedelta | None]:
    """What holds where neither the handler nor the rules say anything; and how long to wait at least.

    HTTP errors say by their status whether another attempt can help; permission errors say that none can.
    """
    if isinstance(exception, PermissionError):
        return "fatal", None
    try:
        status, headers = _http(exception)
        if status is None:
            return "retry", None
        if status in _CLIENT_ERRORS and status not in _PASSING:
            return "fatal", None
        return "retry", _retry_after(headers) if status in _SAYS_WHEN else None
    except Exception:  # noqa: BLE001 # wall: an exception's attributes may be code of its own
        return "retry", None


def _http(exception: BaseException) -> tuple[int | None, Any]:
    """The HTTP status that an exception tells of, and its headers.

    httpx and requests have `exception.response.status_code`, aiohttp `exception.status`, urllib
    `exception.code`. Many other errors have a `status` or a `code`: those count only beside `headers`.
    """
    response = getattr(exception, "response", None)
    headers = getattr(response, "headers", None) or getattr(exception, "headers", None)
    named = [getattr(response, "status_code", None), getattr(response, "status", None)]
    named.append(getattr(exception, "status_code", None))
    if headers is not None:
        named += [getattr(exception, "status", None), getattr(exception, "code", None)]
    for status in named:
        if isinstance(status, int) and status in _HTTP_ERRORS:
            return int(status), headers
    return None, headers


def _retry_after(headers: Any) -> timedelta | None:
    """How many seconds the other side asks for; a date is not read."""
    said = headers.get("Retry-After") if headers is not None else None
    text = said.strip() if isinstance(said, str) else ""
    if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
        return None
    return timedelta(seconds=min(int(text), _LONGEST_RETRY_AFTER))


_MOST_DIGITS = 10
