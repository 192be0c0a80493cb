"""Does the simulator find bugs? Each planted one by itself, in a copy of the source.

What was found is written after each, so that a run can be stopped and taken up again. A bug that is not found
is a finding about the simulator.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "mutants.json"
SECONDS = 600.0


class Mutant(NamedTuple):
    """A bug: in one file, one piece of text instead of another."""

    name: str
    file: str
    right: str
    wrong: str
    # On which store it is played: `simulate.py --store` gets this.
    store: str = "sqlite"
    # A real bug that we had, by reverting its fix: the commit of the fix, or where it was reported.
    real: str = ""
    # The promises that may be found broken by it; any other one is the wrong reason. None: whichever.
    promises: frozenset[str] = frozenset()


def _sql(name: str, file: str, statement: str, right: str, wrong: str, store: str = "sqlite") -> Mutant:
    """A change within one named statement."""
    text = (ROOT / "src/windlass/store" / file).read_text()
    start = text.index(f"-- name: {statement}\n")
    end = text.find("\n-- name:", start + 1)
    whole = text[start : end if end > 0 else len(text)]
    if right not in whole:
        raise SystemExit(f"{name}: {right!r} is not in {statement}")
    return Mutant(name, f"store/{file}", whole, whole.replace(right, wrong), store)


MUTANTS: tuple[Mutant, ...] = (
    _sql(
        "a retry without its fence", "running.sql", "put_back", "seq = :seq and token = :token", "seq = :seq"
    ),
    _sql(
        "a completion without its fence",
        "sqlite/hot.sql",
        "finish_together [sqlite]",
        " and jobs.token = json_extract(done.value, '$[1]')",
        "",
    ),
    _sql("a lease that anybody extends", "running.sql", "extend", " and token = :token", ""),
    _sql("a dead letter without its fence", "sqlite/hot.sql", "bury_running", " and token = :token", ""),
    Mutant(
        "workers declared dead without the silence rule",
        "upkeep/membership.py",
        "DEAD_AFTER = 10.0",
        "DEAD_AFTER = 1.0",
        promises=frozenset({"living"}),
    ),
    Mutant(
        "a watcher that was away counts its own absence as silence",
        "upkeep/membership.py",
        "        if now - pulse.sent > WELL_WITHIN or pulse.gaps != self._gaps:",
        "        if False:",
        promises=frozenset({"living"}),
    ),
    _sql("dead although its beat has moved", "fleet.sql", "declare_dead", " and beat = :beat", ""),
    Mutant(
        "a settle that does not look at the operator's request",
        "store/sqlite/hot.py",
        '        if asked is not None and asked["request"] is not None:',
        "        if False:",
    ),
    _sql("a batch closed twice", "chains.sql", "lock_batch", " and finished_at is null", ""),
    Mutant(
        "a batch closed before its last job has ended",
        "store/chains.py",
        '    if row is None or tx.row("batch_goes_on", id=batch) is not None:',
        "    if row is None:",
    ),
    _sql("a dependent released by its first parent", "chains.sql", "release_dependent", "waits_for - 1", "0"),
    Mutant(
        "a schedule advanced without its fence",
        "store/schedules.py",
        "        return []\n    if todo.missed is not None:",
        "        pass\n    if todo.missed is not None:",
        "postgres",
    ),
    _sql(
        "attempts that are not counted", "running.sql", "put_back", "attempts - :given_back", "attempts - 1"
    ),
    Mutant(
        "an outcome lost when its write fails",
        "worker/settler.py",
        "            self.queue.extendleft(reversed(batch))\n            raise",
        "            raise",
    ),
    Mutant(
        "a limit counted without the jobs that run",
        "store/limits.py",
        '    return 0 if row is None else int(row["count"])',
        "    return 0",
    ),
    Mutant(
        "a worker that goes on under its old name after it was declared dead",
        "worker/heartbeat.py",
        "            self._rejoin()\n        elif",
        "            self._membership.confirm(sent, generation)\n        elif",
    ),
    Mutant(
        "a run that starts although its worker is not sure of its lease",
        "worker/runner.py",
        "        if self.closed or not self._membership.sure() or lease.worker != self._membership.id:",
        "        if self.closed:",
    ),
    Mutant(
        "a claim whose answer was lost is forgotten",
        "worker/claimer.py",
        "            self._doubt.begin()\n",
        "",
        real="889ae84d",
        promises=frozenset({"leases"}),
    ),
    Mutant(
        "a job that never started keeps the token of its rate",
        "store/sqlite/hot.py",
        "    if settlement.tokens:\n",
        "    if False:\n",
        real="4c5d9e65",
        promises=frozenset({"rates"}),
    ),
    Mutant(
        "a repeated request of an operator is carried out twice",
        "store/jobs.py",
        '    if asked["request_id"] and any(each.request_id == asked["request_id"] for each in job.changes):',
        "    if False:",
        real="00a93974",
        promises=frozenset({"audit"}),
    ),
    Mutant(
        "a schedule's run by hand is made twice for one request",
        "store/schedules.py",
        "by-hand:{request_id or draft.id}",
        "by-hand:{draft.id}",
        real="6a517de0",
        promises=frozenset({"audit"}),
    ),
    Mutant(
        "a clock that was set wrong costs dead letters",
        "upkeep/maintenance.py",
        "kept.keep_dead if self._is_steady() else _NOT_NOW",
        "kept.keep_dead",
        real="a67020a2",
        promises=frozenset({"retention"}),
    ),
    Mutant(
        "a job dies because an older release cannot read it",
        "worker/settler.py",
        "self._write(self.releases.reconsider(batch) if dead else batch)",
        "self._write(batch)",
        real="review, core 1",
        promises=frozenset({"releases"}),
    ),
    Mutant(
        "a process refuses by name what another live release takes",
        "queue/producer.py",
        "                found = self._in_another_release(handler, payload)",
        "                found = None",
        real="0757784b; review, core 2",
        promises=frozenset({"releases"}),
    ),
    Mutant(
        "a key of one tenant is answered with the job of another",
        "store/keys.py",
        "    if not new.tenant:\n        return _take_within",
        "    if new.key:\n        return _take_within",
        real="review, core 4",
        promises=frozenset({"keys"}),
    ),
    Mutant(
        "counts whose answer was lost count twice",
        "store/history.py",
        '    if not tx.change("note_flush", teller=flush.teller, number=flush.number, now=tx.now):',
        "    if False:",
        real="2d99fd7c",
        promises=frozenset({"records"}),
    ),
    Mutant(
        "a schedule fires whose function no release has any more",
        "store/schedules.py",
        '    return alive and row["updated_at"] < fleet.orphaned_before and not fleet.serves(row["type"])',
        "    return False",
        real="review, execution 6",
        promises=frozenset({"schedules"}),
    ),
    Mutant(
        "work that outlives its attempt gives its permit away",
        "store/sqlite/hot.py",
        "        if each.held:",
        "        if False:",
        real="39ed93d3",
        promises=frozenset({"limits"}),
    ),
)


def _statement(name: str, file: str, statement: str, right: str, wrong: str = "") -> Mutant:
    """A change within one statement of PostgreSQL's, which only an interleaving of statements shows."""
    return _sql(name, file, f"{statement} [postgres]", right, wrong, "postgres")


MUTANTS += (
    Mutant(
        "a handler that raised is taken for one that returned",
        "outcome.py",
        "            return _raised(job, _told(job, result, policy), policy, now, chance)",
        "            return Done()",
        promises=frozenset({"completions"}),
    ),
    Mutant(
        "a key with another payload is answered as if it were the same",
        "store/keys.py",
        "    if holder.digest != new.digest() and not new.take_existing:",
        "    if False:",
        promises=frozenset({"keys"}),
    ),
    _statement("a batch closed without its lock", "chains.sql", "lock_batch", " for update"),
    _statement("an action that does not lock its job", "jobs.sql", "lock_job", " for update"),
    _statement("a limit counted without its lock", "limits.sql", "lock_limit", " for update skip locked"),
    _statement("a schedule changed as it was read", "schedules.sql", "lock_schedule", " for update"),
    _statement("an operation moved on as it was read", "operations.sql", "lock_operation", " for update"),
    _statement(
        "a unique name looked up without its lock",
        "chains.sql",
        "lock_unique",
        "pg_advisory_xact_lock(hashtextextended('windlass.unique:' || cast(:name as text), 0))",
        "cast(:name as text)",
    ),
    _statement(
        "one request that claims in two places at once",
        "postgres/claim.sql",
        "lock_request",
        "pg_advisory_xact_lock(hashtextextended('windlass.request ' || cast(:mark as text), 0))",
        "cast(:mark as text)",
    )._replace(real="00a93974"),
    _statement("a limited claim of what is due no more", "limits.sql", "claim_limited", " and j.due > 0"),
    _statement(
        "keys taken by a look and an insert",
        "postgres/hot.sql",
        "take_keys",
        " order by g.scope, g.key\non conflict (caller, key) do nothing",
        " where not exists (select 1 from windlass.keys as k where k.caller = g.scope and k.key = g.key)"
        "\n order by g.scope, g.key",
    ),
    Mutant(
        "a parent looked at without its lock",
        "store/chains.py",
        'tx.row("lock_job", id=job_id) or tx.row("by_id_ended", id=job_id)',
        'tx.row("by_id", id=job_id) or tx.row("by_id_ended", id=job_id)',
        "postgres",
    ),
    Mutant(
        "a batch extended without its lock",
        "store/chains.py",
        'tx.row("lock_batch", id=batch.id) is not None\n    done',
        '(tx.row("batch", id=batch.id) or {}).get("finished_at", 0) is None\n    done',
        "postgres",
    ),
    Mutant(
        "a key whose holder has just gone is not tried again",
        "store/postgres/hot.py",
        "_TRIES = 5\n",
        "_TRIES = 1\n",
        "postgres",
    ),
)


def main() -> int:
    """Play all; 1 if one was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long to look for each, of one core"
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only those of one store")
    parser.add_argument("--only", help="only those whose name has this in it")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    options = parser.parse_args()
    if not any((options.only or "") in mutant.name for mutant in MUTANTS):
        parser.error(f"--only must be part of a name, got {options.only!r}")
    if options.again:
        RESULTS.unlink(missing_ok=True)
    # Those that we had ourselves come first.
    for mutant in sorted(MUTANTS, key=lambda each: not each.real):
        if (options.only or "") not in mutant.name or options.store not in (None, mutant.store):
            continue
        if mutant.name not in results() or options.only:
            played = play(mutant, options.seconds) | {"store": mutant.store}
            # Read again: another run may play those of the other store.
            RESULTS.write_text(json.dumps(results() | {mutant.name: played}, indent=1) + "\n")
        print(f"{mutant.name:<72} {line_of(results()[mutant.name])}", flush=True)
    known = results()
    missed = [mutant.name for mutant in MUTANTS if known.get(mutant.name, {}).get("found") is False]
    print(f"{len(known) - len(missed)} found, {len(missed)} missed")
    return 1 if missed else 0


def results() -> dict[str, dict[str, object]]:
    """What was found until now."""
    found: dict[str, dict[str, object]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def play(mutant: Mutant, seconds: float) -> dict[str, object]:
    """Look for one bug."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "windlass" / mutant.file
        text = file.read_text()
        if text.count(mutant.right) != 1:
            raise SystemExit(
                f"{mutant.name}: {mutant.right!r} is {text.count(mutant.right)} times in {mutant.file}"
            )
        file.write_text(text.replace(mutant.right, mutant.wrong))
        words = [sys.executable, str(ROOT / "scripts/simulate.py"), "--seconds", str(seconds)]
        words += ["--store", mutant.store]
        done = subprocess.run(
            words, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
        )
    last = done.stdout.strip().rpartition("\n")[2]
    # Until it was found, without the time for a short story.
    after = re.search(r"seed \d+ after (\d+) s", done.stdout)
    took = float(after[1]) if after else seconds
    found = re.fullmatch(r"seed (\d+): ([a-z ]+): (.*); (\d+) steps", last)
    if found is None:
        said = last or done.stderr.strip()[-500:]
        return {"found": False, "real": mutant.real, "seconds": took, "said": said}
    seed, promise, detail, steps = found.groups()
    return {
        "found": not mutant.promises or promise in mutant.promises,
        "real": mutant.real,
        "seconds": took,
        "seed": int(seed),
        "promise": promise,
        "steps": int(steps),
        "detail": re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", detail),
    }


def line_of(result: dict[str, object]) -> str:
    """A result in a line."""
    if not result["found"]:
        said = result.get("said") or f"for the wrong reason: {result['promise']}: {result['detail']}"
        return f"NOT FOUND in {result['seconds']} s: {said}"
    return f"{result['promise']:<12} seed {result['seed']}, {result['steps']} steps, {result['seconds']} s"


if __name__ == "__main__":
    sys.exit(main())
