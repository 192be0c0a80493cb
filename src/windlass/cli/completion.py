"""How does a shell complete our words? By asking this very program."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from windlass.cli.commands import Command
from windlass.cli.session import session
from windlass.ops.document import encode

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Command,
    examples="""
        windlass completion bash
        windlass completion zsh
        windlass completion fish
    """,
)
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
    click.echo(encode({"shell": shell, "script": script}) if session().json else script)


# A file of zsh's fpath is run at each call, and loaded at the first alone: only that one would be answered.
_LOADED, _CALLED = "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _windlass"
# Where the script puts what it asks; the program then answers with words and does nothing else.
VARIABLE = "_WINDLASS_COMPLETE"
COMMANDS = (completion,)
