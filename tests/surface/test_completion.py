"""Do the three shells complete what is typed? Each finds its script where the help says, and is asked."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import shells
from tests.servers.postgres import missing
from tests.surface.conftest import Terminal
from tests.waiting import PATIENCE
from windlass.clock import SystemClock

PLACES = {
    "bash": ".local/share/bash-completion/completions/windlass",
    "zsh": "functions/_windlass",
    "fish": ".config/fish/completions/windlass.fish",
}


class Home:
    """A folder of somebody who uses a shell, with the script where it belongs and the program on the path."""

    def __init__(self, windlass: Terminal, shell: str) -> None:
        found = shells.program(shell)
        if found is None:
            missing(f"{shell} is not here: {shells.INSTALL}")
        self.shell, self.folder = str(found), windlass.folder
        self.script = windlass.folder / PLACES[shell]
        self.script.parent.mkdir(parents=True)
        self.script.write_text(windlass.ok("completion", shell).out)
        program = windlass.write("bin-windlass", f'#!/bin/sh\nexec "{sys.executable}" -m windlass "$@"\n')
        program.chmod(0o755)
        bin_ = windlass.folder / "bin"
        bin_.mkdir()
        program.rename(bin_ / "windlass")
        self.environment = {
            "HOME": str(windlass.folder),
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "TERM": "xterm",
            "LANG": "C.UTF-8",
        }

    def told(self, *words: str) -> list[str]:
        """What the shell says."""
        done = subprocess.run(
            [self.shell, *words],
            capture_output=True,
            text=True,
            check=True,
            env=self.environment,
            cwd=self.folder,
            timeout=PATIENCE,
        )
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1]


def test_bash_completes_commands_and_options(windlass: Terminal) -> None:
    home = Home(windlass, "bash")
    ask = '_windlass_completion windlass; printf "%s\\n" "${COMPREPLY[@]}"'
    load = f"source {home.script}"
    assert home.told("-c", f"{load}; COMP_WORDS=(windlass dl); COMP_CWORD=1; {ask}") == ["dlq"]
    assert home.told("-c", f"{load}; COMP_WORDS=(windlass list --sta); COMP_CWORD=2; {ask}") == ["--state"]
    states = home.told("-c", f"{load}; COMP_WORDS=(windlass list --state d); COMP_CWORD=3; {ask}")
    assert states == ["dead", "discarded", "due"]


def test_fish_completes_commands_and_options(windlass: Terminal) -> None:
    home = Home(windlass, "fish")

    def offered(line: str) -> list[str]:
        return sorted(each.partition("\t")[0] for each in home.told("-c", f"complete -C '{line}'"))

    assert offered("windlass dl") == ["dlq"]
    assert offered("windlass list --sta") == ["--state"]
    assert offered("windlass list --state d") == ["dead", "discarded", "due"]


def test_zsh_completes_commands_and_options(windlass: Terminal) -> None:
    home = Home(windlass, "zsh")
    with typing(home) as keys:
        # Ctrl-G tells what stands on the line.
        keys.type("bindkey -e; told() { zle -M \"[$BUFFER]\" }; zle -N told; bindkey '^G' told\n")
        keys.type("fpath=(~/functions $fpath); autoload -U compinit; compinit -u\n")
        keys.type("windlass dl\t\x07")
        keys.see("[windlass dlq ]")
        keys.type("\x15windlass list --sta\t\x07")
        keys.see("[windlass list --state ]")
        # What is possible stands below.
        keys.type("\x15windlass list --state d\t")
        keys.see("discarded")


class Keys:
    """A terminal that somebody types at."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
        self._seen = ""

    def type(self, text: str) -> None:
        """Type; what was seen before is forgotten."""
        self._seen = ""
        os.write(self._screen, text.encode())

    def see(self, text: str) -> None:
        """Look until it is there."""
        clock = SystemClock()
        end = clock.monotonic() + PATIENCE
        while text not in self._seen:
            left = end - clock.monotonic()
            ready, _, _ = select.select([self._screen], [], [], max(0.0, left))
            assert ready, f"{text!r} not seen: {self._seen!r}"
            self._seen += os.read(self._screen, 4096).decode(errors="replace")


@contextmanager
def typing(home: Home) -> Iterator[Keys]:
    """A shell at a terminal of its own, without anybody's settings."""
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(home.folder)
        os.execve(home.shell, [home.shell, "-f", "-i"], home.environment)  # noqa: S606 - it is the shell
    try:
        yield Keys(screen)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(screen)


@pytest.mark.parametrize("shell", PLACES)
def test_the_script_is_also_given_as_json(windlass: Terminal, shell: str) -> None:
    document = windlass.ok("completion", shell, "--json").json
    assert document["shell"] == shell
    assert document["script"] in windlass.ok("completion", shell).out
    assert Path(PLACES[shell]).name in windlass.ok("completion", "--help").out
