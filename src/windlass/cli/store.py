"""How is the store looked after?"""

from __future__ import annotations

from datetime import timedelta

import click

from windlass import connect
from windlass.cli.commands import Group
from windlass.cli.options import span
from windlass.cli.screen import jobs, number, size
from windlass.cli.session import session
from windlass.config import without_password
from windlass.ops.document import encode


@click.group(
    cls=Group,
    examples="""
        windlass db status
        windlass db backup jobs-2030-01-31.db
        windlass db prune
    """,
)
def db() -> None:
    """The store itself: its size and version, backup, cleaning up."""


@db.command(
    examples="""
        windlass db status
        windlass db status --json
    """,
)
def status() -> None:
    """Size, versions and warnings."""
    here = session()
    found = here.ops().db_status()
    if here.json:
        click.echo(encode(found))
        return
    facts = (
        ("store", without_password(found.url)),
        ("kind", f"{found.kind} {found.version}"),
        ("schema", f"{found.schema} (this version of Windlass knows {found.newest_schema})"),
        ("size", size(found.size_bytes)),
        ("live jobs", number(found.live)),
        ("ended jobs", number(found.archived)),
    )
    for name, value in facts:
        click.echo(f"{name:<12}{value}")
    for note in found.notes:
        click.echo(here.screen.paint(f"! {note}", "yellow"))


@db.command(
    examples="""
        windlass db migrate
        windlass db migrate --db shop.db
    """,
)
def migrate() -> None:
    """Bring the store to the schema of this version; a database without one gets Windlass's tables."""
    here = session()
    applied = connect.migrate(here.config.database_url)
    found = here.ops().db_status()
    done = f"applied {', '.join(applied)}" if applied else "nothing to do"
    told = f"{without_password(found.url)} has schema {found.schema}, the newest: {done}"
    click.echo(encode({"schema": found.schema, "applied": applied}) if here.json else told)


@db.command(
    examples="""
        windlass db prune
        windlass db prune --ended 1d --dead 90d
    """,
)
@click.option(
    "--ended", type=span, metavar="DURATION", help="Keep completed, cancelled and discarded jobs so long."
)
@click.option("--dead", type=span, metavar="DURATION", help="Keep dead jobs so long.")
def prune(ended: timedelta | None, dead: timedelta | None) -> None:
    """Delete the records of jobs that ended longer ago than their retention.

    Workers do this by themselves; the retention is set by config set keep_ended and keep_dead. Jobs that wait
    or run are never touched.
    """
    here = session()
    pruned = here.ops().prune(ended=ended, dead=dead)
    click.echo(encode({"pruned": pruned}) if here.json else f"{jobs(pruned)} deleted")


@db.command(
    examples="""
        windlass db backup jobs-2030-01-31.db
    """,
)
@click.argument("path", type=click.Path(dir_okay=False, writable=True))
def backup(path: str) -> None:
    """Write a consistent copy to PATH while workers go on. PATH must not exist yet.

    Of a PostgreSQL store pg_dump writes it, and pg_restore reads it.
    """
    here = session()
    here.ops().backup(path)
    click.echo(encode({"path": path}) if here.json else f"copied to {path}")


@db.command(
    examples="""
        windlass db check
    """,
)
def check() -> None:
    """Look for damage in the stored data; exit 1 if there is any."""
    here = session()
    problems = here.ops().check()
    if here.json:
        click.echo(encode({"problems": problems}))
    else:
        click.echo("\n".join(problems) or "No problems found.")
    if problems:
        click.get_current_context().exit(1)


COMMANDS = (db,)
