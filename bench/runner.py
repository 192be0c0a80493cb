"""How is a whole run done? Round by round, case by case, contender after contender, whatever fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from bench import cases, environments
from bench.cases import Case
from bench.client import Client, Failed
from bench.contenders import Contender
from bench.drive.contract import Cannot
from bench.places import Missing, Place, Places
from bench.results import Entrant, Results, Run

_SETUP_SECONDS = 60.0
_CASE_SECONDS = 240.0
_CROWD_SECONDS = 900.0
_WARM_UP = 500
Tell = Callable[[str], None]


class Runner:
    """Measures and keeps what was found."""

    def __init__(self, places: Places, results: Results, *, tell: Tell, deadline: float) -> None:
        self._places = places
        self._results = results
        self._tell = tell
        self._deadline = deadline
        self._done = {(run.case, run.contender, run.round) for run in results.runs}

    def run(self, which: list[Case], contenders: list[Contender], keep: Callable[[], None]) -> None:
        """Measure everything that is not in the results yet; `keep` is called after each step."""
        for number in range(1, self._results.rounds + 1):
            for case in which:
                asked = [
                    each
                    for each in contenders
                    if number <= case.rounds
                    and cases.takes_part(case, each)
                    and (case.name, each.name, number) not in self._done
                ]
                if not asked or not self._fits(case, asked, number):
                    continue
                for run in self._step(case, asked, number):
                    self._results.runs.append(run)
                    self._tell(_line(case, run))
                    keep()

    def _fits(self, case: Case, contenders: list[Contender], number: int) -> bool:
        """Whether there is time for a case; the first round is only given up when there is none at all."""
        needed = cases.estimate([case], contenders, 1, self._results.scale) if number > 1 else 0.0
        if time.monotonic() + needed <= self._deadline:
            return True
        self._tell(f"round {number}  {case.name:<16}left out: the time is up")
        return False

    def _step(self, case: Case, contenders: list[Contender], number: int) -> Iterator[Run]:
        if not case.together:
            yield from (self._measured(case, each, number) for each in contenders)
            return
        with ThreadPoolExecutor(cases.TOGETHER) as pool:
            yield from pool.map(lambda each: self._measured(case, each, number), contenders)

    def _measured(self, case: Case, contender: Contender, number: int) -> Run:
        run = Run(case=case.name, contender=contender.name, round=number)
        try:
            return replace(run, figures=self._figures(case, contender))
        except Cannot as reason:
            return replace(run, cannot=str(reason))
        except (Failed, Missing, environments.NotInstalled) as error:
            return replace(run, failed=str(error))

    def _figures(self, case: Case, contender: Contender) -> dict[str, Any]:
        with self.driver(contender, counted=case.name == "idle") as (client, place):
            arguments = case.arguments(contender, cases.size_of(case, self._results.scale))
            if case.crowd is not None:
                return self._crowded(case, client, place, arguments)
            asked: list[int | None] = []
            told = client.ask(
                case.verb,
                within=_CASE_SECONDS,
                news=lambda _: asked.append(self._asked(case, place)),
                **arguments,
            )
            match asked:
                case [int(before), int(after)]:
                    told["asked"] = (after - before) / told["seconds"]
            return told

    @contextlib.contextmanager
    def driver(self, contender: Contender, *, counted: bool = False) -> Iterator[tuple[Client, Place]]:
        """A driver with a store of its own, ready to be asked; `counted`: what it asks of its server."""
        python = environments.python_for(contender.pins, contender.python)
        plain_path = contender.driver not in {"windlass", "raw"}
        place = self._places.fresh(contender.store, plain_path=plain_path, counted=counted)
        try:
            with Client(python, contender.driver, place.url) as client:
                about = client.ask("setup", within=_SETUP_SECONDS)
                self._results.entrants[contender.name] = Entrant(
                    title=contender.title,
                    store=contender.store,
                    version=about["version"],
                    settings=about["settings"],
                    leaves_out=about["leaves_out"],
                )
                yield client, place
        finally:
            place.close()

    def _crowded(self, case: Case, client: Client, place: Place, arguments: dict[str, Any]) -> dict[str, Any]:
        """The same drain twice on one store, with the crowd coming in between."""
        count = cases.crowd_size(str(case.crowd), self._results.scale)
        # Who cannot says so at once.
        client.ask("crowd", within=_CASE_SECONDS, kind=case.crowd, count=0)
        # Once before it counts: the first drain meets an empty file or cache.
        client.ask("drain", within=_CASE_SECONDS, **arguments | {"count": min(_WARM_UP, arguments["count"])})
        before = client.ask("drain", within=_CASE_SECONDS, **arguments)
        client.ask("crowd", within=_CROWD_SECONDS, kind=case.crowd, count=count)
        self._places.tidy(place)
        after = client.ask("drain", within=_CASE_SECONDS, **arguments)
        return {
            "share": after["rate"] / before["rate"],
            "before": before["rate"],
            "after": after["rate"],
            "crowd": count,
        }

    def _asked(self, case: Case, place: Place) -> int | None:
        return self._places.asked(place) if case.name == "idle" else None


def _line(case: Case, run: Run) -> str:
    if run.figures:
        told = ", ".join(
            f"{metric} {_short(run.figures[metric])} {unit}"
            for metric, unit in case.metrics.items()
            if metric in run.figures
        )
    else:
        told = f"cannot: {run.cannot}" if run.cannot else f"FAILED: {run.failed}"
    return f"round {run.round}  {case.name:<16}{run.contender:<23}{told}"


def _short(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"  # noqa: PLR2004
