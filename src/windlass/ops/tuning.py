"""What has an operator set at run time, and how is it changed?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass import settings
from windlass.ops.actions import Verbs

_DEFAULTS = tuple(settings.DEFAULTS.items())


class SettingValue(msgspec.Struct, frozen=True):
    """A run-time setting: its effective value, and whether an operator stored it."""

    name: str
    value: Any
    stored: bool


class TuningVerbs(Verbs):
    """The verbs about settings. Workers follow within a second."""

    def _refuse_idle(self, changes: Mapping[str, str | None]) -> None:
        raise NotImplementedError

    def settings(self) -> list[SettingValue]:
        """Every run-time setting with its effective value: the general ones, then those for single types."""
        stored = self.store.settings()
        effective = settings.read(stored).values
        general = [
            SettingValue(name, effective.get(name, default), name in stored) for name, default in _DEFAULTS
        ]
        special = sorted(name for name in effective if name not in settings.DEFAULTS)
        return general + [SettingValue(name, effective[name], stored=True) for name in special]

    def setting_problems(self) -> list[str]:
        """Stored settings that cannot be used, in words."""
        return list(settings.read(self.store.settings()).problems)

    def set_setting(self, name: str, value: str, *, by: str | None = None, why: str = "") -> None:
        """Set a run-time setting; it holds until it is set again or reset."""
        self.set_settings({name: value}, by=by, why=why)

    def reset_setting(self, name: str, *, by: str | None = None, why: str = "") -> None:
        """Forget what was set: code or default hold again."""
        self.set_settings({name: None}, by=by, why=why)

    def set_settings(
        self, changes: Mapping[str, str | None], *, by: str | None = None, why: str = ""
    ) -> None:
        """Set several, all or none; None resets one."""
        settled = settings.check_changes(self.store.settings(), changes)
        self._refuse_idle(settled)
        if settled:
            self.store.set_settings(settled, by=self._who(by), why=why)
            self._wake()
