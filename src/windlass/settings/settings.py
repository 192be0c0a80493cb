"""What have operators set, and what does it come to for one type?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from windlass.errors import InvalidValue, must_be
from windlass.job import DEFAULT_PRIORITY
from windlass.policy.breaker import BreakerTerms
from windlass.policy.limit import Limit, Rate
from windlass.policy.retry import Retry
from windlass.settings.names import ALL, DEFAULTS, KEY, split
from windlass.settings.values import parse

_RETRY = "retry."


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the jobs of one type, all layers considered."""

    max_attempts: int
    timeout: timedelta
    retry: Retry


class TypePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that holds for a type's jobs from enqueue to end: operator over code over default."""

    run: Effective
    priority: int
    max_priority: int
    max_age: timedelta | None


class Settings(msgspec.Struct, frozen=True):
    """What operators have set, read and checked; `problems` names what could not be read and is not used."""

    values: dict[str, Any]
    problems: tuple[str, ...] = ()

    @property
    def keep_ended(self) -> timedelta:
        """How long completed, cancelled and discarded jobs are kept."""
        keep: timedelta = self.value("keep_ended")
        return keep

    @property
    def keep_dead(self) -> timedelta:
        """How long dead jobs are kept."""
        keep: timedelta = self.value("keep_dead")
        return keep

    @property
    def keep_schemas(self) -> timedelta:
        """How long a release's schemas stay in the catalogue after the last of its processes was seen."""
        keep: timedelta = self.value("keep_schemas")
        return keep

    @property
    def orphan_after(self) -> timedelta | None:
        """How long no worker must have had a schedule's function, or declared it, before it fires no more.

        None: a schedule whose function is gone goes on; what code declares no more ends with `keep_schemas`.
        """
        after: timedelta | None = self.value("schedules.orphan_after")
        return after

    def effective(
        self,
        job_type: str,
        *,
        max_attempts: int | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
    ) -> Effective:
        """What holds for a type whose code says this much; None: the code says nothing."""
        return Effective(
            max_attempts=self._choose(job_type, "max_attempts", max_attempts),
            timeout=self._choose(job_type, "timeout", timeout),
            retry=self._retry(job_type, retry),
        )

    def of_type(self, job_type: str, options: Mapping[str, Any]) -> TypePolicy:
        """Which policy holds for a type whose code says these options, as the catalogue has them.

        Workers, servers, producers, schedules and what operators are shown all ask here.
        """
        said = options.get("said", ())
        run = self.effective(
            job_type,
            max_attempts=options["max_attempts"] if "max_attempts" in said else None,
            timeout=timedelta(seconds=options["timeout"]) if "timeout" in said else None,
            retry=msgspec.convert(options["retry"], Retry) if "retry" in said else None,
        )
        max_age = options.get("max_age")
        return TypePolicy(
            run=run,
            priority=options.get("priority", DEFAULT_PRIORITY),
            max_priority=self._choose(job_type, "max_priority", options.get("max_priority")),
            max_age=None if max_age is None else timedelta(seconds=max_age),
        )

    def limit(self, name: str, code: Limit | None = None) -> Limit:
        """What limits a type, a key (`key:crm`) or all jobs (`*`) whose code says this much."""
        said = code or Limit()
        # What holds for types in general is not meant for keys, nor for all jobs together.
        general = name != ALL and not name.startswith(KEY)
        rate: Rate | None = self._bound(name, "rate", said.rate, general=general)
        burst: int | None = self._bound(name, "burst", None, general=general)
        if rate is not None and burst is not None:
            rate = msgspec.structs.replace(rate, burst=burst)
        return Limit(
            concurrency=self._bound(name, "concurrency", said.concurrency, general=general),
            rate=rate,
            per_tenant=self._bound(name, "tenant_concurrency", said.per_tenant, general=general),
        )

    @property
    def low_share(self) -> float:
        """Which share of the jobs that a worker starts are of the lowest priority that waits."""
        share: float = self.value("low_share")
        return share

    def soft_depth(self, job_type: str) -> int:
        """How many jobs of a type, or of all (`*`), may wait before it is worth a warning."""
        depth: int = self._choose(job_type, "soft_depth", None)
        return depth

    def hard_depth(self, job_type: str) -> int:
        """How many jobs of a type, or of all (`*`), may wait at all."""
        depth: int = self._choose(job_type, "hard_depth", None)
        return depth

    def breaker(self, name: str) -> BreakerTerms:
        """When the breaker of a type, or of a key (`key:crm`), opens."""
        parts = ("share", "jobs", "window", "probe")
        return BreakerTerms(
            **{
                part: self.values[override]
                if (override := f"{name}.breaker.{part}") in self.values
                else self.value(f"breaker.{part}")
                for part in parts
            }
        )

    def _bound(self, name: str, setting: str, code: Any, *, general: bool) -> Any:
        """One bound; an operator may also have set that there is none."""
        override = f"{name}.{setting}"
        if override in self.values:
            return self.values[override]
        return self.value(setting) if code is None and general else code

    def _choose(self, job_type: str, name: str, code: Any) -> Any:
        override = self.values.get(f"{job_type}.{name}")
        if override is not None:
            return override
        return self.value(name) if code is None else code

    def value(self, name: str) -> Any:
        """What holds for a setting that is not about types."""
        return self.values.get(name, DEFAULTS[name])

    def _retry(self, job_type: str, code: Retry | None) -> Retry:
        """The parts of a policy are set one by one, over the code's policy or over the default one."""
        base = code or msgspec.structs.replace(Retry(), **self._retry_parts(_RETRY))
        return msgspec.structs.replace(base, **self._retry_parts(f"{job_type}.{_RETRY}"))

    def _retry_parts(self, prefix: str) -> dict[str, Any]:
        parts = ("kind", "base", "cap", "jitter", "delays")
        return {part: self.values[prefix + part] for part in parts if prefix + part in self.values}


def read(stored: Mapping[str, str]) -> Settings:
    """The settings that a store holds. Never raises: one bad setting must not stop a worker."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in sorted(stored.items()):
        try:
            values[name] = parse(name, text)
        except InvalidValue as error:
            problems.append(str(error))
    for name in _lists_without_delays(values):
        del values[name]
        problems.append(f"{name} is list, but {_delays_of(name)} is not set")
    return Settings(values, tuple(problems))


def check_changes(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """The changes as they are stored (None: a reset); refuses those that would leave the settings wrong."""
    values = dict(read(stored).values)
    for name, text in changes.items():
        if text is not None:
            values[name] = parse(name, text)
        elif name not in stored:
            split(name)
        else:
            values.pop(name, None)
    for kind in _lists_without_delays(values):
        if kind in changes:
            raise must_be(kind, changes[kind], f"set after {_delays_of(kind)}")
        raise must_be(_delays_of(kind), None, f"kept while {kind} is list")
    return {name: None if text is None else text.strip() for name, text in changes.items()}


def _lists_without_delays(values: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in values.items()
        if value == "list" and name.endswith("retry.kind") and _delays_of(name) not in values
    ]


def _delays_of(kind_name: str) -> str:
    return kind_name.removesuffix("kind") + "delays"
