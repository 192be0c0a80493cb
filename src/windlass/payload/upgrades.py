"""Upgrade payloads of older releases to what today's handler takes, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.errors import InvalidPayload, must_be

Step = Callable[[dict[str, Any]], dict[str, Any]]


class Upgrades:
    """One step from each version to the next, chained: 1 to 2, 2 to 3, up to the handler's own."""

    def __init__(self, job_type: str, version: int) -> None:
        self._job_type = job_type
        self._version = version
        self._steps: dict[int, Step] = {}

    def add(self, from_version: object, step: Step) -> None:
        """Enter the step that begins at a version; each has one."""
        # By its exact type: True would be a version 1.
        if type(from_version) is not int or not 1 <= from_version < self._version:
            known = f"the handler of {self._job_type} is of version {self._version}"
            raise must_be("from_version", from_version, f"an older version: {known}")
        if from_version in self._steps:
            raise must_be("from_version", from_version, f"given once for {self._job_type}")
        self._steps[from_version] = step

    @property
    def known(self) -> list[int]:
        """The versions from which a step leads on."""
        return sorted(self._steps)

    def missing(self) -> list[int]:
        """The versions after the oldest known one from which no step leads on."""
        oldest = min(self._steps, default=self._version)
        return [version for version in range(oldest, self._version) if version not in self._steps]

    def covers(self, version: int) -> bool:
        """Whether a payload of that version can be brought up to date."""
        return version in self._steps or version >= self._version

    def apply(self, payload: dict[str, Any], version: int) -> dict[str, Any]:
        """Bring a payload up to date, step by step; InvalidPayload names the step that fails.

        A handler without any steps is asked to take older payloads as they are: its new version may only
        have added fields with defaults.
        """
        if not self._steps:
            return payload
        for current in range(version, self._version):
            if current not in self._steps:
                raise self._refusal(current, f"there is no upgrade(from_version={current})")
            try:
                payload = self._steps[current](payload)
            except Exception as error:  # wall: the application's own step
                raise self._refusal(current, f"{type(error).__name__}: {error}") from error
            if not isinstance(payload, dict):
                raise self._refusal(current, f"its step returned {type(payload).__name__}, not a dict")
        return payload

    def _refusal(self, version: int, why: str) -> InvalidPayload:
        step = f"from version {version} to {version + 1}"
        return InvalidPayload(f"{self._job_type}: a payload could not be upgraded {step}: {why}")
