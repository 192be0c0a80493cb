"""How is the store looked after?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta

import click
from msgspec import to_builtins

from windlass import connect
from windlass import move as moving
from windlass.cli.commands import group, option, span
from windlass.cli.screen import number, steps
from windlass.cli.session import Session, answer, end, facts, session
from windlass.errors import StoreMismatch, StoreUnavailable
from windlass.move import Running
from windlass.ops import Ops
from windlass.ops.words import count
from windlass.size import size_text
from windlass.url import without_password


@group("""
    windlass db status
    windlass db backup jobs-2030-01-31.db
    windlass db restore jobs-2030-01-31.db
    windlass db prune
    windlass db move --to postgresql://app@db.example/jobs
""")
def db() -> None:
    """The store itself: its size and version, backup, restore, cleaning up, moving to another."""


@db.subcommand("""
    windlass db status
    windlass db status --json
""")
def status() -> None:
    """Size, versions and warnings; of a store that this version cannot use, what it would take."""
    here = session()
    try:
        found = here.ops().store.status()
    except StoreMismatch as error:
        _show_unusable(here, error)
        return
    shown = {
        "store": without_password(found.url),
        "kind": f"{found.kind} {found.version}",
        "schema": _versions(found.schema, found.newest_schema),
        "size": size_text(found.size_bytes),
        "live jobs": number(found.live),
        "ended jobs": number(found.archived),
    }
    answer(found, _lines(shown, found.notes))


def _show_unusable(here: Session, error: StoreMismatch) -> None:
    """The schema alone, which can be told of any release's store."""
    found = connect.schema(here.config.database_url)
    if found.number is None:
        raise error
    url = without_password(here.config.database_url)
    shown = {
        "store": url,
        "schema": _versions(found.number, found.newest),
        "pending": ", ".join(found.pending) or "none",
        "half-made": ", ".join(found.invalid_indexes) or "no index",
    }
    answer({"url": url, **to_builtins(found), "notes": [str(error)]}, _lines(shown, [str(error)]))


def _lines(found: Mapping[str, str], notes: Sequence[str]) -> Iterator[str]:
    yield from facts(found.items(), indent="")
    yield from (session().screen.paint(f"! {note}", "yellow") for note in notes)


def _versions(schema: int, newest: int) -> str:
    return f"{schema} (this version of Windlass knows {newest})"


@db.subcommand("""
    windlass db migrate
    windlass db migrate --dry-run
    windlass db migrate --db shop.db
""")
@option("--dry-run", "Only say what would be done.")
def migrate(dry_run: bool) -> None:
    """Bring the store to the schema of this version; a database without one gets Windlass's tables.

    Workers go on meanwhile. Two who do this at once do it once, and one that was cut off is done again.
    """
    url = session().config.database_url
    if dry_run:
        found = connect.schema(url)
        todo = [f"apply {label}" for label in found.pending]
        todo += [f"build index {name} again" for name in found.invalid_indexes]
        answer(found, todo or f"nothing to do: schema {found.number}")
        return
    applied = connect.migrate(url, say=lambda words: click.echo(words, err=True))
    found = connect.schema(url)
    done = f"applied {', '.join(applied)}" if applied else "nothing to do"
    newest = "the newest" if not found.ahead else f"and this version knows {found.newest}"
    text = f"{without_password(url)} has schema {found.number}, {newest}: {done}"
    answer({"schema": found.number, "applied": applied}, text)


@db.subcommand("""
    windlass db prune
    windlass db prune --ended 1d --dead 90d
""")
@option("--ended DURATION", "Keep completed, cancelled and discarded jobs so long.", type=span)
@option("--dead DURATION", "Keep dead jobs so long.", type=span)
def prune(ended: timedelta | None, dead: timedelta | None) -> None:
    """Delete the records of jobs that ended longer ago than their retention.

    Workers do this by themselves; the retention is set by config set keep_ended and keep_dead. Jobs that wait
    or run are never touched.
    """
    pruned = session().ops().prune(ended=ended, dead=dead)
    answer({"pruned": pruned}, f"{count(pruned, 'job')} deleted")


@db.subcommand("""
    windlass db backup jobs-2030-01-31.db
""")
@click.argument("path", type=click.Path(dir_okay=False, writable=True))
def backup(path: str) -> None:
    """Write a consistent copy to PATH while workers go on. PATH must not exist yet.

    Of a PostgreSQL store pg_dump writes it, and pg_restore reads it.
    """
    session().ops().store.backup(path)
    answer({"path": path}, f"copied to {path}")


@db.subcommand("""
    windlass db restore jobs-2030-01-31.db
    windlass db restore jobs-2030-01-31.db --db jobs.db
""")
@click.argument("backup", type=click.Path(dir_okay=False))
def restore(backup: str) -> None:
    """Put a backup in the place of the SQLite store, while no other process has the store open.

    BACKUP is checked first and stays as it is; the file that was there is kept beside the store. Jobs that
    ended after the backup was taken are back as they were then, and run again.
    """
    done = connect.restore(session().config.database_url, backup)
    jobs_there = f"{count(done.live, 'job')} waiting, running or dead, {done.archived:,} ended"
    lines = [f"{done.path} was restored from {backup}: {jobs_there}"]
    if done.kept:
        lines.append(f"the file that was there is kept as {done.kept}")
    if done.running:
        ran = f"{count(done.running, 'job')} ran when the backup was taken"
        lines.append(f"{ran}: workers take over and run them again")
    if done.pending:
        many = f"({len(done.pending)} to apply)"
        lines.append(f"its schema is older than this version: run `windlass db migrate` {many}")
    lines.append("check it with `windlass db check`, then start workers, servers and producers again")
    answer(done, lines)


@db.subcommand("""
    windlass db check
""")
def check() -> None:
    """Look for damage in the stored data; exit 1 if there is any."""
    problems = session().ops().store.check()
    answer({"problems": problems}, problems or "No problems found.")
    end(int(bool(problems)))


@db.subcommand("""
    windlass db move --db jobs.db --to postgresql://app@db.example/jobs
    windlass db move --db jobs.db --to postgresql://app@db.example/jobs --drain
    windlass db move --db jobs.db --to postgresql://app@db.example/jobs --abort
""")
@option("--to URL", "The PostgreSQL database; an empty one will do.", name="to", required=True)
@option("--drain", "Let workers that are alive finish what runs, and exit.")
@option("--force", "Do not wait for workers: what they run runs again in the new store.")
@option("--abort", "Take back a move that is not over.", name="taken_back")
def move(to: str, drain: bool, force: bool, taken_back: bool) -> None:
    """Move all jobs from a SQLite file to PostgreSQL, with ids, keys, history and settings.

    Nobody can write to either store meanwhile. What was copied is compared by counts and checksums before the
    jobs change hands; from then on the file can only be read, and tells every writer where to go. A move that
    was cut off goes on when it is started again.
    """
    if drain + force + taken_back > 1:
        raise click.UsageError("--drain, --force and --abort cannot be combined")
    here = session()
    url = here.config.database_url
    if taken_back:
        _take_back(url, to)
        return
    with closing(connect.source(url)) as source, closing(connect.target(to)) as target:
        running = Running.DRAIN if drain else Running.LEAVE if force else Running.REFUSE
        with closing(connect.open(url, create=False)) as opened, steps(as_json=here.json) as step:
            moved = moving.move(source, target, Ops(opened.store), running=running, step=step)
    lines = [
        f"{name:<10}{number(found.rows):>12} {'row ' if found.rows == 1 else 'rows'}  {found.checksum}"
        for name, found in moved.tables.items()
    ]
    there = f"moved to {moved.target}: point producers and workers there"
    answer(moved, [*lines, f"{there}; {moved.source} can still be read"])


def _take_back(url: str, to: str) -> None:
    with closing(connect.source(url)) as source:
        try:
            with closing(connect.target(to)) as target:
                moving.abort(source, target)
            left = f"{target.place} is empty"
        except StoreUnavailable as error:
            if source.mark() is not None:
                moving.abort(source, None)
            left = f"what was copied is left where it is: {error}"
    text = f"taken back: {source.place} is open again; {left}"
    answer({"aborted": source.place, "target": left}, text)


COMMANDS = (db,)
