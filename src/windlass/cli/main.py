"""Where does the command line begin, and how does it end?"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

import click

from windlass.checks import storable
from windlass.cli import (
    access,
    actions,
    bench,
    called,
    capacity,
    completion,
    dlq,
    doctor,
    flow,
    jobs,
    metrics,
    operations,
    produce,
    schedules,
    serve,
    settings,
    signals,
    store,
    tail,
    top,
    up,
    work,
)
from windlass.cli.commands import Group
from windlass.cli.process import leave
from windlass.cli.session import Session
from windlass.errors import InvalidValue, StoreError, WindlassError, must_be
from windlass.store.engine import Unstorable

REFUSED = 1
WRONG_COMMAND_LINE = 2
NO_STORE = 3
# As shells say it: 128 and the number of the signal.
INTERRUPTED = 130
# A mistake of ours; the number is the one that sysexits.h has for it.
INTERNAL = 70


# In the order of use, which is the order of the help.
MODULES = (
    *(up, serve, work, produce, jobs, top, tail, actions, operations, dlq, flow, schedules),
    *(settings, access, store, metrics, doctor, signals, capacity, bench, completion),
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples="""
        windlass up                                       demo jobs and the dashboard, to look around
        windlass run --wait -- echo hello                 a command as a job
        windlass worker start myapp:queue                 run the jobs of your application
        windlass enqueue send_email '{"to": "a@b.c"}'     put a job into the queue
        windlass status                                   how things stand
    """,
)
@click.version_option(version("windlass"), message="windlass %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Windlass: background jobs on one SQLite file, or on PostgreSQL. No accepted job is ever lost."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for module in MODULES:
    for command in module.COMMANDS:
        cli.add_command(command)


def main() -> NoReturn:
    """The program `windlass`."""
    called.look()
    here = Session(own_process=True)
    code = run(sys.argv[1:], here)
    leave(here, code)
    sys.exit(code)


def run(args: Sequence[str], here: Session | None = None) -> int:
    """Run one command line and answer its exit code; every error is one line on standard error."""
    try:
        session = here or Session()
        session.arguments = tuple(args)
        code = cli.main(args=list(args), prog_name="windlass", standalone_mode=False, obj=session)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 # wall: a person gets one line, whatever it is
        return _ended_by(error, args)


def _ended_by(error: BaseException, args: Sequence[str]) -> int:
    if _began_with_an_interrupt(error):
        _say("interrupted")
        return INTERRUPTED
    if isinstance(error, click.Abort):
        _say("not done: it was not confirmed; --yes confirms beforehand")
        return REFUSED
    odd = next(itertools.filterfalse(storable, args), None)
    if isinstance(error, Unstorable) and odd is not None:
        return _failed(must_be("argument", odd, "text in UTF-8"))
    if isinstance(error, click.ClickException | WindlassError):
        return _failed(error)
    if os.environ.get("WINDLASS_DEBUG"):
        traceback.print_exception(error)
    _say(f"internal error: {type(error).__name__}: {error}; WINDLASS_DEBUG=1 shows where")
    return INTERNAL


def _began_with_an_interrupt(error: BaseException | None) -> bool:
    """Ctrl-C may come between any two steps, and closing what was only half begun may then fail as well."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _failed(error: click.ClickException | WindlassError) -> int:
    if isinstance(error, click.UsageError):
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        _say(error.format_message().rstrip(".") + where)
        return WRONG_COMMAND_LINE
    if isinstance(error, click.ClickException):
        _say(error.format_message())
        return error.exit_code
    _say(str(error))
    if isinstance(error, InvalidValue):
        return WRONG_COMMAND_LINE
    return NO_STORE if isinstance(error, StoreError) else REFUSED


def _say(message: str) -> None:
    click.echo(f"windlass: {called.as_typed(' '.join(message.split()))}", err=True)


def _silence_stdout() -> None:
    """The reader has seen enough; the interpreter's own last flush must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
