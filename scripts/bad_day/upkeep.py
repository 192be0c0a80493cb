"""What goes on by itself: schedules whose function was deleted, and records that somebody must prune."""

from __future__ import annotations

import subprocess
import time

from bad_day.stage import Scenario, Stage

BEFORE = """
from windlass import Queue
queue = Queue()

@queue.job(every="1s", overlap="queue")
def ghost() -> None: ...

@queue.job
def mail() -> None: ...
"""

AFTER = """
from windlass import Queue
queue = Queue()

@queue.job
def mail() -> None: ...

@queue.job(max_attempts=1)
def broken() -> None:
    raise RuntimeError("nobody fixes this")
"""

# Moves what has ended into the past, a few records to each of forty days; no clock has to be set for it.
AGE = """
import sqlite3, sys
url, days = sys.argv[1], int(sys.argv[2])
day = 86_400_000_000
if url.startswith("sqlite"):
    store = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)
    store.execute("update windlass_archive set finished_at = finished_at - (10 + seq % ?) * ?", (days, day))
    store.execute("update windlass_jobs set finished_at = finished_at - 40 * ? where state = 'dead'", (day,))
    marks = "windlass_clock_watch"
else:
    import psycopg
    store = psycopg.connect(url)
    store.execute(
        "select windlass.make_days(windlass.now() - (10 + n) * %s, 1) from generate_series(0, %s) as n",
        (day, days),
    )
    store.execute(
        "update windlass.archive set finished_at = finished_at - (10 + seq %% %s) * %s", (days, day)
    )
    store.execute("update windlass.jobs set finished_at = finished_at - 40 * %s where state = 'dead'", (day,))
    marks = "windlass.clock_watch"
store.commit()
try:
    # As if the store's clock had been seen two hours ago for the first time.
    store.execute(f"update {marks} set since = since - 7200000000")
    store.commit()
except Exception:
    pass
"""

# As `windlass db prune`, but all begin at the same moment and go in small steps, with many looks at the days.
PRUNE = """
import pathlib, sys, time
from windlass.store.upkeep import Retention
from after import queue
queue.store.now()
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.001)
while queue.store.prune(Retention(), limit=3):
    pass
"""

ROUNDS, AT_ONCE = 4, 4
GRACE_SECONDS = 6.0
QUIET_SECONDS = 8.0


def deleted_function(stage: Stage) -> None:
    """A deploy deletes a scheduled function; it must not fire for ever, and an operator can remove it."""
    stage.write("before.py", BEFORE)
    stage.write("after.py", AFTER)
    stage.windlass("config", "set", "schedules.orphan_after", f"{GRACE_SECONDS:g}s")
    old = stage.worker("before:queue")
    fired = stage.until(lambda: len(stage.jobs("--type", "ghost")) > 1, 30)
    stage.promise("the schedule fires while a worker has it", held=fired)
    old.terminate()
    old.wait(60)
    stage.worker("after:queue")
    stage.until(lambda: _state(stage) == "orphaned", GRACE_SECONDS + 20)
    stage.promise("it is shown as orphaned", held=_state(stage) == "orphaned", seen=_state(stage))
    time.sleep(2)
    before = len(stage.jobs("--type", "ghost"))
    time.sleep(QUIET_SECONDS)
    more = len(stage.jobs("--type", "ghost")) - before
    stage.promise("it fires no more", held=more == 0, seen=f"{more} more jobs in {QUIET_SECONDS:g} s")
    told = stage.windlass("status").stdout
    finding = next((line.strip() for line in told.splitlines() if "Schedule ghost:" in line), "nothing")
    stage.promise("the verdict tells of it", held="no live worker has its function" in finding, seen=finding)
    again = stage.worker("before:queue")
    back = stage.until(lambda: len(stage.jobs("--type", "ghost")) > before + 1, 60)
    stage.promise("it fires again when its function is back", held=back)
    again.terminate()
    again.wait(60)
    stage.until(lambda: _state(stage) == "orphaned", GRACE_SECONDS + 20)
    removed = stage.windlass("schedule", "remove", "ghost")
    stage.promise(
        "it can be removed",
        held=removed.returncode == 0,
        seen=f"exit {removed.returncode} {removed.stderr.strip()}",
    )


def _state(stage: Stage) -> str:
    found: dict[str, str] = {
        each["name"]: each["state"] for each in stage.json("schedule", "list")["schedules"]
    }
    return found.get("ghost", "gone")


def prunes_at_once(stage: Stage) -> None:
    """Several prune at the same time, many days of the archive at once."""
    stage.write("after.py", AFTER)
    stage.write("prune.py", PRUNE)
    failures = []
    for number in range(ROUNDS):
        _complete(stage, 300)
        stage.python("-c", AGE, stage.url, "150")
        log = f"prunes{number}.log"
        prunes = [stage.start("prune.py", f"go{number}", log=log) for _ in range(AT_ONCE)]
        stage.until(lambda log=log: stage.log(log).count("ready") == AT_ONCE, 60)  # type: ignore[misc]
        stage.write(f"go{number}", "")
        codes = [each.wait(120) for each in prunes]
        failures += [line for line in stage.log(log).splitlines() if "Error" in line]
        failures += [f"exit {code}" for code in codes if code]
    seen = failures[:1] or "none failed"
    stage.promise(f"{AT_ONCE} prunes at once, {ROUNDS} times, all succeed", held=not failures, seen=seen)
    left = stage.states()
    stage.promise("nothing past its retention is left", held=left == {}, seen=left)


def short_runs(stage: Stage) -> None:
    """A store that only `worker start --until-empty` serves, as from cron."""
    stage.write("after.py", AFTER)
    stage.windlass("--app", "after:queue", "enqueue", "broken")
    _complete(stage, 50)
    stage.python("-c", AGE, stage.url, "20")
    warned = stage.windlass("doctor").stdout
    line = next((each.strip() for each in warned.splitlines() if "retention" in each), "nothing")
    stage.promise("doctor warns that retention is behind", held="past its retention" in line, seen=line)
    # Somebody has just pruned, so the next one comes later: as if it were later.
    stage.python("-c", _FORGET, stage.url)
    for _ in range(2):
        _run(stage)
    left = stage.states()
    stage.promise("two short runs later it is pruned", held=left == {}, seen=left)
    audited = stage.windlass("audit", "--verb", "prune").stdout
    stage.promise(
        "the end of the dead letter is audited",
        held="retention" in audited and " job " in audited,
        seen=" ".join(audited.splitlines()[-1:]),
    )


_FORGET = """
import sqlite3, sys
url = sys.argv[1]
if url.startswith("sqlite"):
    store = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)
    store.execute("delete from windlass_ticks where name = 'prune'")
else:
    import psycopg
    store = psycopg.connect(url)
    store.execute("delete from windlass.ticks where name = 'prune'")
store.commit()
"""


def _complete(stage: Stage, count: int) -> None:
    stage.write("mails.ndjson", '{"type": "mail"}\n' * count)
    stage.windlass("--app", "after:queue", "enqueue", "--file", "mails.ndjson")
    _run(stage)


def _run(stage: Stage) -> subprocess.CompletedProcess[str]:
    return stage.windlass("worker", "start", "after:queue", "--until-empty")


SCENARIOS = (
    Scenario("15", "deleted-function", "a scheduled function is deleted by a deploy", deleted_function),
    Scenario("16", "prunes-at-once", "four prune at once, many days each", prunes_at_once, ("postgres",)),
    Scenario("16", "short-runs", "only --until-empty runs serve the store", short_runs),
)
