"""How do both stores come to the verbs of the flow? Each is one read or one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.store.verbs import flow, limiting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.store.flow import Pause, Restriction, Switches

T = TypeVar("T")


class Flowing:
    """The verbs of the flow for a store that can read and write."""

    def _read(self, verb: Callable[..., T], *args: object) -> T:
        raise NotImplementedError

    def _change(self, verb: Callable[..., T], *args: object) -> T:
        """Write what may be written twice."""
        raise NotImplementedError

    def adopt(self, restricted: Mapping[str, Restriction]) -> None:
        self._change(limiting.adopt, restricted)

    def switches(self) -> Switches:
        return self._read(flow.switches)

    def pause(self, job_type: str, *, by: str = "", why: str = "") -> Pause:
        return self._change(flow.pause, job_type, by, why)

    def resume(self, job_type: str) -> bool:
        return self._change(flow.resume, job_type)
