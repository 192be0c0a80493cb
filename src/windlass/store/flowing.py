"""How do both stores come to the verbs of the flow? Each is one read or one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.store.verbs import admitting, breaking, flow, limiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from windlass.policy.breaker import BreakerTerms
    from windlass.store.flow import Breaker, BreakerState, Depths, Pause, Restriction, Runs, Switches

T = TypeVar("T")


class Flowing:
    """The verbs of the flow for a store that can read and write."""

    def _read(self, verb: Callable[..., T], *args: object) -> T:
        raise NotImplementedError

    def _change(self, verb: Callable[..., T], *args: object) -> T:
        """Write what may be written twice."""
        raise NotImplementedError

    def set_breaker(self, name: str, state: BreakerState, *, by: str = "", why: str = "") -> Breaker:
        return self._change(breaking.set_breaker, name, state, by, why)

    def note_runs(
        self, worker: str, runs: Sequence[Runs], terms: Mapping[str, BreakerTerms]
    ) -> list[Breaker]:
        return self._change(breaking.note_runs, worker, runs, terms)

    def depths(self) -> Depths:
        return self._read(admitting.depths)

    def count_depths(self, older_than: timedelta) -> Depths:
        return self._change(admitting.count_depths, older_than)

    def adopt(self, restricted: Mapping[str, Restriction]) -> None:
        self._change(limiting.adopt, restricted)

    def switches(self) -> Switches:
        return self._read(flow.switches)

    def pause(self, job_type: str, *, by: str = "", why: str = "") -> Pause:
        return self._change(flow.pause, job_type, by, why)

    def resume(self, job_type: str, *, by: str = "", why: str = "") -> bool:
        return self._change(flow.resume, job_type, by, why)
