"""Who may speak with a server, and who did what?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from windlass.cli.actions import commands
from windlass.cli.commands import command, group, option, rate, span, tenant_option, why_option
from windlass.cli.screen import Cell, Row, age
from windlass.cli.session import answer, session, table
from windlass.errors import Refused
from windlass.ops.access import KeyWish, Role
from windlass.ops.document import encode
from windlass.store.access import Entry, KeyInfo


@group("""
    windlass keys create billing --role producer --type 'invoice.*'
    windlass keys list
    windlass keys revoke 3f9a1c22b70d --after 1d
""")
def keys() -> None:
    """API keys, with which programs speak with `windlass serve`."""


@keys.subcommand("""
    windlass keys create ops --role admin
    windlass keys create billing --role producer --type 'invoice.*' --tenant acme --rate 100/s
    windlass keys create gpu-box --role worker --type resize --expires 90d
""")
@click.argument("name", metavar="NAME")
@option(
    "--role",
    "What it may do; may be repeated.",
    multiple=True,
    type=click.Choice([role.value for role in Role]),
    required=True,
)
@option("--type TYPE", "Types, or patterns of them; else all.", name="types", multiple=True)
@option("--tenant NAME", "The tenant that all its jobs belong to.")
@option("--rate RATE", "How many jobs it may enqueue, such as 100/s [1000/s].", type=rate)
@option("--expires DURATION", "How long it lasts; else until it is revoked.", name="lasts", type=span)
@why_option
def create(name: str, role: tuple[str, ...], why: str, **given: Any) -> None:
    """Make a key for the service NAME. It is shown once: the store keeps only its digest.

    A service may have several keys, so that a new one can take over before the old one is revoked.
    """
    here = session()
    ops = here.ops(create=True)
    key = ops.create_key(KeyWish(name=name, roles=role, **given), why=why)
    if here.json:
        click.echo(encode(key))
        return
    if key.key is None:
        raise Refused(f"key {key.id} was made, but the answer with it was lost: revoke it, make another")
    click.echo(key.key)
    click.echo(f"key {key.id} of {key.name}; it is not shown again", err=True)
    if len(ops.keys()) == 1:
        click.echo("it is the first: servers ask for a key from now on, wherever they are", err=True)
        click.echo("restart workers that should not run shell jobs any more", err=True)


@keys.subcommand("""
    windlass keys list
    windlass keys list --json
""")
def list_command() -> None:
    """Every key with what it may do and when it was last of use; never the key itself."""
    ops = session().ops()
    found, now = ops.keys(), ops.now()
    head = ("ID", "NAME", "STATE", "ROLES", "RATE", "TENANT", "USED", "TYPES")
    rows = [_key(each, now) for each in found]
    answer({"keys": found}, table(head, rows, "there are no API keys"))


def _key(key: KeyInfo, now: datetime) -> Row:
    rate = f"{key.rate:g}/s" if key.rate else None
    used = f"{age(now - key.used_at)} ago" if key.used_at else "never"
    roles, types = ", ".join(key.roles), ", ".join(key.types) or "all"
    return [key.id, key.name, _state(key, now), roles, rate, key.tenant, used, types]


def _state(key: KeyInfo, now: datetime) -> Cell:
    if key.valid(now):
        ends = min((end for end in (key.expires_at, key.revoked_at) if end is not None), default=None)
        return Cell("valid" if ends is None else f"until {ends:%Y-%m-%d %H:%M}", "green")
    return Cell("revoked" if key.revoked_at is not None else "expired", "bright_black")


for _command in commands("keys/"):
    keys.add_command(_command)


@command("""
    windlass audit
    windlass audit job1
    windlass audit --who ann --verb replay --json
""")
@click.argument("target", required=False, default="", metavar="[TARGET]")
@tenant_option
@option("--who NAME", "What this one did.", default="")
@option("--verb VERB", "Such as cancel, replay, pause, set, drain, create, revoke.", default="")
@option("--limit N", "How many.", type=int, default=50, show_default=True)
@option("--cursor CURSOR", "Where the page before ended.")
def audit(**given: Any) -> None:
    """Who did what, newest first: to a job, type, schedule, setting, worker or key if one is named."""
    page = session().ops().audit(**given)
    head = ("AT", "WHO", "VERB", "WHAT", "TARGET", "CHANGE")
    answer(page, table(head, map(_row, page.entries), "no entries"))
    if page.next and not session().json:
        click.echo(f"more: --cursor {page.next}", err=True)


def _row(entry: Entry) -> Row:
    before, after = entry.before or {}, entry.after or {}
    changed = [
        f"{name}: {before.get(name, '')} -> {after[name]}" if name in before else f"{name}: {after[name]}"
        for name in after
        if before.get(name) != after[name]
    ]
    text = "; ".join([*changed, entry.why] if entry.why else changed)
    what, at = entry.kind.replace("_", " "), f"{entry.at:%Y-%m-%d %H:%M:%S}"
    return [at, entry.who, entry.verb, what, entry.target, text]


COMMANDS = (keys, audit)
