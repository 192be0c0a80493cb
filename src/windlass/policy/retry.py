"""How long shall a job wait before its next attempt?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from windlass.errors import must_be

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["exponential", "power", "linear", "fixed", "list", "never"]
KINDS: tuple[Kind, ...] = ("exponential", "power", "linear", "fixed", "list", "never")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy: seconds to wait after the n-th attempt failed, plus a random part up to `jitter`.

    exponential  base * 2**(n-1)      power  base**n      linear  base * n      (each at most `cap`)
    fixed        base                 list   delays[n-1], the last one repeated
    never        no second attempt
    """

    kind: Kind = "exponential"
    base: float = 30.0
    cap: float = 3600.0
    jitter: float = 15.0
    delays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise must_be("retry.kind", self.kind, "one of " + ", ".join(KINDS))
        for name in ("base", "cap", "jitter"):
            _check_seconds(f"retry.{name}", getattr(self, name))
        if (self.kind == "list") != bool(self.delays):
            raise must_be(
                "retry.delays", self.delays, "at least one number for kind list, none for the others"
            )
        for seconds in self.delays:
            _check_seconds("retry.delays", seconds)

    def delay(self, attempt: int, chance: Callable[[], float]) -> float | None:
        """Seconds to wait after attempt number `attempt`, or None for no further attempt.

        `chance` gives a number in [0, 1), as `random.random` does.
        """
        if self.kind == "never":
            return None
        return self._plain(attempt) + chance() * self.jitter

    def _plain(self, attempt: int) -> float:
        match self.kind:
            case "fixed":
                return self.base
            case "list":
                return self.delays[min(attempt, len(self.delays)) - 1]
            case "linear":
                return min(self.base * attempt, self.cap)
            case "power":
                return _raised(self.base, attempt, self.cap)
            case _:
                return min(self.base * _raised(2.0, attempt - 1, _LONGEST), self.cap)


def _raised(base: float, exponent: int, cap: float) -> float:
    try:
        return min(base**exponent, cap)
    except OverflowError:
        return cap


def _check_seconds(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise must_be(field, value, f"seconds between 0 and {_LONGEST}")


_LONGEST = 30 * 86_400
