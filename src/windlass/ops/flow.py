"""How does an operator hold jobs back, and let them go?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windlass import settings
from windlass.checks import check_limit_key, check_type
from windlass.errors import Refused, UnknownType, must_be
from windlass.ops.tuning import TuningVerbs
from windlass.policy import Limit, key_limits, limit_from
from windlass.registry import SHELL
from windlass.settings import ALL, KEY

if TYPE_CHECKING:
    from windlass.job import TypeInfo
    from windlass.store.flow import Breaker, BreakerState, Pause


class FlowVerbs(TuningVerbs):
    """The verbs about types rather than jobs. Workers follow within a second."""

    def pause(self, job_type: str, *, by: str | None = None, why: str = "") -> Pause:
        """Start no more jobs of a type; they are still accepted, and those that run go on."""
        return self.store.pause(self._known_type(job_type), by=self._who(by), why=why)

    def resume(self, job_type: str, *, by: str | None = None, why: str = "") -> bool:
        """Start them again; False if the type was not paused."""
        resumed = self.store.resume(check_type(job_type), by=self._who(by), why=why)
        self._wake()
        return resumed

    def breaker(self, name: str) -> Breaker | None:
        """The breaker before a type, or of a key (`key:crm`); None if it was never anything but closed."""
        return self.store.switches().breakers.get(self._broken(name))

    def set_breaker(self, name: str, state: BreakerState, *, by: str | None = None, why: str = "") -> Breaker:
        """Open or close the breaker of a type, or of a key (`key:crm`), or let outcomes decide again."""
        changed = self.store.set_breaker(self._broken(name), state, by=self._who(by), why=why)
        self._wake()
        return changed

    def _broken(self, name: str) -> str:
        """The breaker that stands before a type: a shared one, if it shares a key."""
        limited = self._limited(name)
        info = self.store.types().get(limited)
        return KEY + _key(info) if info is not None and _key(info) else limited

    def limit(self, name: str) -> Limit:
        """What limits a type, what shares a key (`key:crm`) or all jobs (`*`), as set or in code."""
        return self._limit(name, self.store.settings())

    def _limit(self, name: str, stored: Mapping[str, str]) -> Limit:
        types = self.store.types()
        known = types.get(name)
        said = None if known is None else limit_from(known.options)
        if name.startswith(KEY):
            said = key_limits(types.values()).get(name.removeprefix(KEY))
        return settings.read(stored).limit(name, said)

    def set_limit(
        self, name: str, bounds: Mapping[str, str], *, by: str | None = None, why: str = ""
    ) -> Limit:
        """Set bounds by name (concurrency, rate, burst, tenant_concurrency; `none` lifts one)."""
        limited = self._limited(name)
        changes = {f"{limited}.{bound}": text.strip() for bound, text in bounds.items()}
        if (
            bounds.get("burst", "none") != "none"
            and self._limit(name, self.store.settings() | changes).rate is None
        ):
            raise must_be(f"{name}.burst", bounds["burst"], "given together with a rate")
        self.set_settings(changes, by=by, why=why)
        return self.limit(name)

    def reset_limit(self, name: str, *, by: str | None = None, why: str = "") -> Limit:
        """Forget what was set: the limits in code hold again."""
        limited, stored = self._limited(name), self.store.settings()
        ours = [f"{limited}.{bound}" for bound in BOUNDS if f"{limited}.{bound}" in stored]
        self.set_settings(dict.fromkeys(ours), by=by, why=why)
        return self.limit(name)

    def _limited(self, name: str) -> str:
        if name == ALL:
            return name
        return self._known_key(name) if name.startswith(KEY) else self._known_type(name)

    def _known_key(self, name: str) -> str:
        """A key that types share, or that something was set for when they did: that can be lifted yet."""
        key = check_limit_key(name.removeprefix(KEY))
        shared = sorted(
            owner.removeprefix(KEY) for owner in owners(self.store.types()) if owner.startswith(KEY)
        )
        if key not in shared and name not in self.store.switches().breakers:
            stored = self.store.settings()
            if not any(f"{name}.{setting}" in stored for setting in settings.PER_TYPE):
                known = ", ".join(shared) or "none"
                raise Refused(f"no type has the limit_key {key!r}; known keys: {known}")
        return name

    def _refuse_idle(self, changes: Mapping[str, str | None]) -> None:
        """Refuse to set what would hold for nobody: types that share a key have its breaker, and no other."""
        types = self.store.types()
        for name, text in changes.items():
            job_type, setting = settings.split(name)
            info = None if job_type is None else types.get(job_type)
            if text is not None and info is not None and setting.startswith("breaker.") and _key(info):
                allowed = f"{KEY}{_key(info)}.{setting}, since {job_type} has the breaker of its limit_key"
                raise must_be("setting", name, allowed)

    def _known_type(self, job_type: str) -> str:
        known = self.store.types()
        if check_type(job_type) not in known and job_type != SHELL:
            raise UnknownType(job_type, known)
        return job_type


def owners(types: Mapping[str, TypeInfo]) -> frozenset[str]:
    """All that something can be set for: types, the keys that they share (`key:crm`), all jobs (`*`)."""
    return frozenset({ALL, SHELL, *types, *(KEY + _key(info) for info in types.values() if _key(info))})


def _key(info: TypeInfo) -> str:
    """The key that a type shares with others; empty if there is none."""
    return info.options.get("limit_key") or ""


BOUNDS = ("concurrency", "rate", "burst", "tenant_concurrency")
