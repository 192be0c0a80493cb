"""Which settings are there, whose can they be, and what holds while nobody has set one?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from windlass.errors import must_be
from windlass.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_TIMEOUT, HIGHEST_PRIORITY, MAX_TYPE
from windlass.policy.breaker import BreakerTerms
from windlass.policy.retry import Retry

# Whose limits hold for all jobs together, and for those that share a key.
ALL = "*"
KEY = "key:"
# Whose jobs are counted apart in metrics.
TENANTS = "metrics.tenants"

_STANDARD = Retry()
_BREAKER = BreakerTerms()

DEFAULTS: dict[str, Any] = {
    "max_attempts": DEFAULT_MAX_ATTEMPTS,
    "timeout": DEFAULT_TIMEOUT,
    "retry.kind": _STANDARD.kind,
    "retry.base": _STANDARD.base,
    "retry.cap": _STANDARD.cap,
    "retry.jitter": _STANDARD.jitter,
    "retry.delays": _STANDARD.delays,
    "concurrency": None,
    "tenant_concurrency": None,
    "rate": None,
    "burst": None,
    "soft_depth": 100_000,
    "hard_depth": 500_000,
    "max_priority": HIGHEST_PRIORITY,
    "breaker.share": _BREAKER.share,
    "breaker.jobs": _BREAKER.jobs,
    "breaker.window": _BREAKER.window,
    "breaker.probe": _BREAKER.probe,
    "low_share": 0.0,
    "keep_ended": timedelta(days=7),
    "keep_dead": timedelta(days=30),
    "keep_schemas": timedelta(minutes=10),
    "schedules.orphan_after": timedelta(minutes=10),
    "alerts.webhook": None,
    "autoscale.target": timedelta(minutes=1),
    "autoscale.least": 1,
    "autoscale.most": 100,
    "autoscale.cooldown": timedelta(minutes=5),
    TENANTS: None,
}
# Whoever knows such an address can write to it: only who may set it is shown it.
SECRET = frozenset({"alerts.webhook"})
_ABOUT_ALL = ("keep_", "low_share", "schedules.", "alerts.", "autoscale.", "metrics.")
PER_TYPE = tuple(name for name in DEFAULTS if not name.startswith(_ABOUT_ALL))
_TOGETHER = ("concurrency", "rate", "burst")


def split(name: str) -> tuple[str | None, str]:
    """The type (None: all types) and the setting that a name speaks of."""
    if name in DEFAULTS:
        return None, name
    for setting in PER_TYPE:
        job_type = name.removesuffix(f".{setting}")
        if job_type != name and 0 < len(job_type) <= MAX_TYPE:
            settable = _settable(job_type)
            if setting not in settable:
                allowed = "one of " + ", ".join(f"{job_type}.{each}" for each in settable)
                raise must_be("setting", name, allowed)
            return job_type, setting
    raise must_be(
        "setting",
        name,
        f"one of {', '.join(DEFAULTS)}, or for one type TYPE.max_attempts, TYPE.timeout, TYPE.rate and so on",
    )


def _settable(owner: str) -> tuple[str, ...]:
    """What can be set for a type, a key or all jobs together: anything else would hold for nobody."""
    if owner == ALL:
        return (*_TOGETHER, "soft_depth", "hard_depth")
    if owner.startswith(KEY):
        return (*_TOGETHER, *(name for name in PER_TYPE if name.startswith("breaker.")))
    return PER_TYPE
