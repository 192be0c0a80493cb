"""Processes whose signals are recorded as faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.history.record import Outcome, Recorder, Verb

WINDLASS = str(Path(sys.executable).with_name("windlass"))
_FAULTS = {
    signal.SIGKILL: Verb.KILL,
    signal.SIGTERM: Verb.STOP,
    signal.SIGINT: Verb.STOP,
    signal.SIGSTOP: Verb.FREEZE,
}


class Process(subprocess.Popen[bytes]):
    """A process with a name in the history, under which it and its children record."""

    def __init__(
        self,
        words: Sequence[str],
        recorder: Recorder,
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.name = recorder.new_name()
        self._recorder = recorder
        self._frozen = ""
        environment = {**os.environ, **(env or {}), **recorder.environment(self.name)}
        super().__init__(words, env=environment, **options)

    def send_signal(self, sig: int) -> None:
        """Send a signal, and record the fault that it is."""
        if sig == signal.SIGCONT and self._frozen:
            super().send_signal(sig)
            self._recorder.finish(self._frozen, Outcome.ANSWERED)
            self._frozen = ""
        elif self.poll() is None and (verb := _FAULTS.get(signal.Signals(sig))) is not None:
            fault = self._recorder.begin(verb, process=self.name)
            super().send_signal(sig)
            if verb is Verb.KILL:
                self._recorder.finish(fault, Outcome.ANSWERED)
            elif verb is Verb.FREEZE:
                self._frozen = fault
        else:
            super().send_signal(sig)
