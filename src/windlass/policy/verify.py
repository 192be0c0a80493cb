"""Was it really done? A share of the completed jobs of a type is checked some time after."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windlass.duration import Duration, parse_duration
from windlass.errors import must_be

USUAL_SHARE = 0.01
USUAL_DELAY = timedelta(minutes=1)
_LONGEST_DELAY = timedelta(days=7)
# What a check may take besides the handler's own parameters.
_MORE = ("job", "result")
_DIGITS = 8
_NUMBERS = 2.0**32


@dataclass(frozen=True)
class Verify:
    """A function that says whether a completed job did what it should, how many are asked, and when."""

    function: Callable[..., Any]
    share: float
    after: timedelta
    wanted: tuple[str, ...]

    def samples(self, job_id: str) -> bool:
        """Whether this job is one of those that are checked: decided by its id, so always alike."""
        return is_sampled(job_id, self.share)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Ask, with those of the arguments that it takes; one that the payload left out is left out here."""
        return self.function(**{name: arguments[name] for name in self.wanted if name in arguments})


def is_sampled(job_id: str, share: float) -> bool:
    """Whether a job is one of so large a share."""
    return int(job_id[-_DIGITS:], 16) < share * _NUMBERS


def check_in(options: Mapping[str, Any], job_id: str) -> timedelta | None:
    """When the outcome of a job is checked, by what the catalogue says of its type; None: not at all."""
    share = options.get("sample")
    if share is None or not is_sampled(job_id, share):
        return None
    return timedelta(seconds=options.get("verify_after", USUAL_DELAY.total_seconds()))


def make_verify(
    function: Callable[..., Any] | None,
    sample: float | None,
    after: Duration | None,
    parameters: Collection[str],
) -> Verify | None:
    """What a decorator says about verification, checked; `parameters` are the handler's."""
    if function is None:
        for name, value in (("sample", sample), ("verify_after", after)):
            if value is not None:
                raise must_be(name, value, "given together with verify")
        return None
    if not callable(function):
        raise must_be("verify", function, "a function that answers True or False")
    share: object = USUAL_SHARE if sample is None else sample
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise must_be("sample", sample, "a share above 0 and up to 1")
    delay = USUAL_DELAY if after is None else parse_duration(after, "verify_after")
    if delay > _LONGEST_DELAY:
        raise must_be("verify_after", after, "at most 7d: records are kept no longer")
    return Verify(function, float(share), delay, _wanted(function, parameters))


def _wanted(function: Callable[..., Any], parameters: Collection[str]) -> tuple[str, ...]:
    allowed = (*parameters, *(name for name in _MORE if name not in parameters))
    wanted = inspect.signature(function).parameters
    for name, each in wanted.items():
        plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if not plain or (name not in allowed and each.default is each.empty):
            raise must_be(f"parameter {name} of verify", str(each), f"one of {', '.join(allowed)}")
    return tuple(name for name in wanted if name in allowed)
