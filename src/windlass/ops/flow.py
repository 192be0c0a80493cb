"""Pause, limit and tune job types at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from windlass.checks import TEXT, Problems, check_limit_key, check_type, storable
from windlass.errors import Refused, UnknownType, must_be
from windlass.ops.actions import Action, Option, TypeName, Verbs, Why
from windlass.policy import Limit, key_limits, limit_from
from windlass.registry import SHELL
from windlass.settings import ALL, DEFAULTS, KEY, PER_TYPE, check_changes, read, split
from windlass.store.flow import Breaker, BreakerState, Pause

if TYPE_CHECKING:
    from windlass.job import TypeInfo

# A setting's value: text as on the command line; a number may go without quotes.
SettingText = str | Annotated[int, Meta(ge=0, le=1_000_000_000)]
SettingTexts = Annotated[Mapping[str, SettingText | None], Option("By name; null forgets what was set.")]
StoreSettings = Annotated[SettingTexts, Meta(examples=[{"keep_ended": "14d"}])]
TypeSettings = Annotated[
    SettingTexts, Meta(examples=[{"concurrency": 2, "rate": "100/m", "timeout": "10m", "retry.base": None}])
]


class SettingValue(msgspec.Struct, frozen=True):
    """A run-time setting: its effective value, and whether an operator stored it."""

    name: str
    value: Any
    stored: bool


class FlowVerbs(Verbs):
    """The verbs about types and settings. Workers follow within a second."""

    @Action(
        "POST types/{type}/pause",
        past="paused at {at:%Y-%m-%d %H:%M:%S} UTC by {by}",
        examples="""
            windlass pause sync_crm
            windlass pause sync_crm --why "the CRM is being moved"
        """,
    )
    def pause(self, job_type: TypeName, *, why: Why = "") -> Pause:
        """Start no more jobs of a type. They are still accepted; those that run go on."""
        return self.store.pause(self._known_type(job_type), by=self._who, why=why)

    @Action(
        "POST types/{type}/resume",
        answers=("type", "resumed"),
        past="runs again",
        examples="windlass resume sync_crm",
    )
    def resume(self, job_type: TypeName, *, why: Why = "") -> bool:
        """Start jobs of a paused type again."""
        if job_type not in self.store.switches().pauses:
            # One that was paused can be resumed, also if nobody registers it any more.
            self._known_type(job_type)
        resumed = self.store.resume(job_type, by=self._who, why=why)
        self._wake()
        return resumed

    def breaker(self, name: str) -> Breaker | None:
        """The breaker before a type, or of a key (`key:crm`); None if it was never anything but closed."""
        return self._breakers().get(self._broken(name))

    def _breakers(self) -> Mapping[str, Breaker]:
        """Every breaker that was ever anything but closed, by type or key."""
        return self.store.switches().breakers

    @Action("POST types/{type}/breaker", command="breaker", own_command=True, past="changed")
    def set_breaker(
        self,
        name: TypeName,
        state: Annotated[BreakerState, Meta(examples=["open"]), Option("open, close or auto.")],
        *,
        why: Why = "",
    ) -> Breaker:
        """Open or close the circuit breaker of a type or key (`key:crm`), or let outcomes decide (`auto`)."""
        changed = self.store.set_breaker(self._broken(name), state, by=self._who, why=why)
        self._wake()
        return changed

    def _broken(self, name: str) -> str:
        """The breaker that stands before a type: a shared one, if it shares a key."""
        limited = self._limited(name)
        info = self.front.types().get(limited)
        return KEY + _key(info) if info is not None and _key(info) else limited

    def limit(self, name: str, changes: dict[str, str] | None = None) -> Limit:
        """What limits a type, a key (`key:crm`) or all jobs (`*`): by code, as set, or by `changes`."""
        types = self.front.types()
        known = types.get(name)
        said = None if known is None else limit_from(known.options)
        if name.startswith(KEY):
            said = key_limits(types.values()).get(name.removeprefix(KEY))
        return read(self.front.settings() | (changes or {})).limit(name, said)

    def set_limit(self, name: str, bounds: Mapping[str, str], *, why: str = "") -> Limit:
        """Set bounds by name (concurrency, rate, burst, tenant_concurrency; `none` lifts one), if any."""
        limited = self._limited(name)
        changes = {f"{limited}.{bound}": text.strip() for bound, text in bounds.items()}
        check_changes(self.front.settings(), changes)
        if bounds.get("burst", "none") != "none" and self.limit(name, changes).rate is None:
            raise must_be(f"{name}.burst", bounds["burst"], "given together with a rate")
        if changes:
            self.set_settings(changes, why=why)
        return self.limit(name)

    def reset_limit(self, name: str, *, why: str = "") -> Limit:
        """Forget what was set: the limits in code hold again."""
        limited, stored = self._limited(name), self.front.settings()
        ours = [f"{limited}.{bound}" for bound in BOUNDS if f"{limited}.{bound}" in stored]
        self.set_settings(dict.fromkeys(ours), why=why)
        return self.limit(name)

    def _limited(self, name: str) -> str:
        if name == ALL:
            return name
        return self._known_key(name) if name.startswith(KEY) else self._known_type(name)

    def _known_key(self, name: str) -> str:
        """A key that types share, or that something was set for when they did: that can be lifted yet."""
        key = check_limit_key(name.removeprefix(KEY))
        shared = {_key(info) for info in self.front.types().values()} - {""}
        if key not in shared and name not in self._breakers():
            stored = self.front.settings()
            if not any(f"{name}.{setting}" in stored for setting in PER_TYPE):
                known = ", ".join(sorted(shared)) or "none"
                raise Refused(f"no type has the limit_key {key!r}; known keys: {known}")
        return name

    def _refuse_idle(self, changes: Mapping[str, str | None]) -> None:
        """Refuse to set what would hold for nobody: types that share a key have its breaker, and no other."""
        types = self.front.types()
        problems = Problems()
        for name, text in changes.items():
            with problems:
                job_type, setting = split(name)
                info = None if job_type is None else types.get(job_type)
                if text is not None and info is not None and setting.startswith("breaker.") and _key(info):
                    allowed = (
                        f"{KEY}{_key(info)}.{setting}, since {job_type} has the breaker of its limit_key"
                    )
                    raise must_be("setting", name, allowed)
        problems.check()

    def _known_type(self, job_type: str) -> str:
        known = self.front.types()
        if check_type(job_type) not in known and job_type != SHELL:
            raise UnknownType(job_type, known)
        return job_type

    def settings(self) -> list[SettingValue]:
        """Every run-time setting with its effective value: the general ones, then those for single types."""
        stored = self.front.settings()
        effective = read(stored).values
        general = [
            SettingValue(name, effective.get(name, default), name in stored)
            for name, default in DEFAULTS.items()
        ]
        special = sorted(name for name in effective if name not in DEFAULTS)
        return general + [SettingValue(name, effective[name], stored=True) for name in special]

    def _settled(self, settings: Mapping[str, SettingText | None], **_: object) -> dict[str, str | None]:
        """The settings as they are stored; everything that is wrong with them is refused at once."""
        said = {name: None if value is None else str(value) for name, value in settings.items()}
        problems = Problems()
        for name, text in [*said.items()]:
            with problems:
                if not storable(f"{name}{text}"):
                    del said[name]
                    raise must_be("settings", name, TEXT)
        with problems:
            said = check_changes(self.front.settings(), said)
            self._refuse_idle(said)
        problems.check()
        return said

    @Action(
        "PUT settings",
        check=_settled,
        command="config set",
        own_command=True,
        operation="put_settings",
        answers=("settings",),
        past="set",
    )
    def set_settings(self, settings: StoreSettings, *, why: Why = "") -> list[SettingValue]:
        """Set run-time settings, all or none; they hold until they are set again, or reset by null."""
        settled = self._settled(settings)
        if settled:
            self.store.set_settings(settled, by=self._who, why=why)
            self._wake()
        return self.settings()

    def _settled_for(self, job_type: str, settings: Mapping[str, SettingText | None], **_: object) -> None:
        problems = Problems()
        with problems:
            # A key that no type shares yet may be set all the same: it holds once one does.
            if job_type.startswith(KEY):
                check_limit_key(job_type.removeprefix(KEY))
            elif job_type != ALL:
                self._known_type(job_type)
        with problems:
            self._settled({f"{job_type}.{name}": value for name, value in settings.items()})
        problems.check()

    @Action(
        "PUT types/{type}",
        command="limit",
        own_command=True,
        answers=("settings",),
        past="set",
        check=_settled_for,
    )
    def set_type(self, job_type: TypeName, settings: TypeSettings, *, why: Why = "") -> list[SettingValue]:
        """Set what holds for a type, for what shares a key (`key:crm`) or for all jobs (`*`), over its code.

        Null forgets what was set, and what is left out stays.
        """
        self._settled_for(job_type, settings)
        return self.set_settings({f"{job_type}.{name}": value for name, value in settings.items()}, why=why)


def owners(types: Mapping[str, TypeInfo]) -> frozenset[str]:
    """All that something can be set for: types, the keys that they share (`key:crm`), all jobs (`*`)."""
    return frozenset({ALL, SHELL, *types, *(KEY + _key(info) for info in types.values() if _key(info))})


def _key(info: TypeInfo) -> str:
    """The key that a type shares with others; empty if there is none."""
    return info.options.get("limit_key") or ""


BOUNDS = ("concurrency", "rate", "burst", "tenant_concurrency")
