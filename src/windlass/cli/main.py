"""Where the command line begins and ends."""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

import click
from click.shell_completion import get_completion_class

from windlass.checks import InvalidValues, storable
from windlass.cli import (
    access,
    actions,
    dlq,
    jobs,
    metrics,
    produce,
    schedules,
    serve,
    settings,
    store,
    top,
    work,
)
from windlass.cli.commands import Group, command
from windlass.cli.process import leave
from windlass.cli.screen import as_typed, find_program_name, say
from windlass.cli.session import Session, answer
from windlass.errors import InvalidValue, StoreError, WindlassError, must_be
from windlass.store.engine import Unstorable

_SHELLS = ("bash", "zsh", "fish")


@command("""
    windlass completion bash
    windlass completion zsh
    windlass completion fish
""")
@click.argument("shell", type=click.Choice(_SHELLS), metavar="SHELL")
def completion(shell: str) -> None:
    """A script that completes commands and options in bash, zsh or fish.

    Write it to ~/.local/share/bash-completion/completions/windlass, to _windlass in a folder of zsh's
    fpath, or to ~/.config/fish/completions/windlass.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the library knows all three
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "windlass", VARIABLE).source().replace(_LOADED, _CALLED)
    answer({"shell": shell, "script": script}, script)


# A file of zsh's fpath is run at each call, and loaded at the first alone: only that one would be answered.
_LOADED, _CALLED = "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _windlass"
# Where the script puts what it asks; the program then answers with words and does nothing else.
VARIABLE = "_WINDLASS_COMPLETE"


REFUSED = 1
WRONG_COMMAND_LINE = 2
NO_STORE = 3
# As shells say it: 128 and the number of the signal.
INTERRUPTED = 130
# A mistake of ours; the number is the one that sysexits.h has for it.
INTERNAL = 70


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


# In the order of use, which is the order of the help.
for each in (
    *(*work.UP, *serve.COMMANDS, *work.COMMANDS, *produce.COMMANDS, *jobs.COMMANDS, *top.COMMANDS),
    *(*actions.COMMANDS, *dlq.COMMANDS, *settings.FLOW, *schedules.COMMANDS),
    *(*settings.COMMANDS, *access.COMMANDS, *store.COMMANDS, *metrics.COMMANDS, *metrics.DOCTOR),
    *(*metrics.PLANNING, completion),
):
    cli.add_command(each)


def main() -> NoReturn:
    """The program `windlass`."""
    find_program_name()
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
        # The reader has seen enough; the interpreter's own last flush must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _failed(error: click.ClickException | WindlassError) -> int:
    if isinstance(error, click.UsageError):
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        _say(error.format_message().rstrip(".") + where)
        return WRONG_COMMAND_LINE
    if isinstance(error, click.ClickException):
        _say(error.format_message())
        return error.exit_code
    for each in error.problems if isinstance(error, InvalidValues) else (error,):
        _say(str(each))
    if isinstance(error, InvalidValue):
        return WRONG_COMMAND_LINE
    return NO_STORE if isinstance(error, StoreError) else REFUSED


def _say(message: str) -> None:
    say(as_typed(message))
