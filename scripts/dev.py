#!/usr/bin/env python3
"""How does a fresh machine come to run, check and test Windlass?

Needs Python 3.11 or newer and nothing else: it makes `.venv`, installs what `requirements-dev.txt` pins, and
runs the project's tools from there. The Makefile is a list of names for these commands.

Each minor version of Python has an environment of its own: `.venv` belongs to the one that made it, and the
others have `.venv-3.12` and so on.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# An older Python must get this far: the whole file keeps to the grammar of Python 3.6.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write("dev: Windlass needs Python 3.11 or newer, and this is %d.%d; " % sys.version_info[:2])  # noqa: UP031
    sys.stderr.write("if there is a newer one, name it: make PYTHON=python3.12 setup\n")
    sys.exit(2)

import tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
REQUIREMENTS = ROOT / "requirements-dev.txt"
REQUIREMENTS_HEADER = "# The development environment; `python3 scripts/dev.py lock` writes this file.\n"


def environment(root: Path, version: str) -> Path:
    """Where the environment of this Python is: `.venv`, unless another version has made it."""
    usual = root / ".venv"
    config = usual / "pyvenv.cfg"
    lines = config.read_text(encoding="utf-8").splitlines() if config.exists() else []
    # "version = 3.11.7"; some tools write version_info instead.
    made_by = [line.partition("=")[2].strip() for line in lines if line.startswith("version")]
    of_another = bool(made_by) and made_by[0].split(".")[:2] != version.split(".")[:2]
    return root / f".venv-{version}" if of_another else usual


VENV = environment(ROOT, "{}.{}".format(*sys.version_info))
STAMP = VENV / "setup.stamp"

# What we start for ourselves, and a program of each. PostgreSQL's other majors are a pinned wheel's.
POSTGRES = {"postgresql-15": Path("/usr/lib/postgresql/15/bin/postgres")}
TESTED = {
    **POSTGRES,
    "pgbouncer": Path("/usr/sbin/pgbouncer"),
    "chromium-headless-shell": Path("/usr/bin/chromium-headless-shell"),
    "prometheus": Path("/usr/bin/prometheus"),
    "zsh": Path("/usr/bin/zsh"),
    "fish": Path("/usr/bin/fish"),
}
MEASURED = {**POSTGRES, "redis-server": Path("/usr/bin/redis-server")}
HANDS_ON = ("test", "test-fast", "run", "exec", "bench")
# What other versions of Python run: what depends on Python and on no server, with few random examples. Races
# between processes, the log's file and the plans of statements are the database's; stopping whole trees of
# processes is the system's.
FAST = (
    *("tests/unit", "tests/conformance", "tests/worker"),
    *("-m", "not slow and not crash and not postgres", "--hypothesis-profile=fast"),
    *(
        f"--ignore=tests/conformance/test_{name}.py"
        for name in ("races", "sqlite_wal", "sqlite_cost", "search_plans")
    ),
    "--ignore=tests/worker/test_cancel.py",
    # Checked by Java.
    "--ignore=tests/unit/test_proofs.py",
)
# The part of all tests that measures coverage, of the core and with a floor: lines run by tests/unit and
# tests/conformance. What differs by database server is left out, since servers may be missing.
COVERED = ("unit", "conformance")
COVERAGE = (
    *(f"--cov=windlass.{name}" for name in ("outcome", "policy", "store")),
    "--cov-report=term:skip-covered",
    "--cov-fail-under=90",
)
# Interrupts a thread between two instructions, which a tracer moves.
UNTRACED = "tests/unit/test_group_commit.py"
BAN_EVERYWHERE = 'lint.flake8-tidy-imports.banned-api."asyncio.wait_for".msg="use asyncio.timeout"'
CHECKS = (
    ("ruff", "check"),
    # A file that is let off the other bans of TID251 is not let off this one.
    ("ruff", "check", "--isolated", "--select=TID251", f"--config={BAN_EVERYWHERE}"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports", "--no-logo"),
    ("python", "scripts/words.py"),
    ("python", "scripts/shape.py", "--check"),
)

# Runs in the new environment.
COMPONENTS = """
import pathlib, platform, sqlite3, sys
from importlib.metadata import version

sys.path.insert(0, ".")
from tests.servers import chromium, pgbouncer, postgres, prometheus, shells

release = sqlite3.sqlite_version_info
fixed = release >= (3, 51, 3) or (3, 50, 7) <= release < (3, 51) or (3, 44, 6) <= release < (3, 45)
rows = [
    ("Python", platform.python_version(), pathlib.Path(sys.prefix).name),
    ("SQLite", sqlite3.sqlite_version, "Python's own" + ("" if fixed else ", with the WAL-reset bug")),
    ("windlass", version("windlass"), "this tree, editable"),
]
names = ("psycopg", "pytest", "hypothesis", "ruff", "mypy")
rows += [(name, version(name), "requirements-dev.txt") for name in names]
found = {major: str(path) for major, path in postgres.majors().items()}
for major in postgres.MAJORS:
    where = "the wheel" if "site-packages" in found.get(major, "") else found.get(major)
    missing = "missing: its tests are skipped; " + postgres.install(major)
    rows.append(("PostgreSQL", str(major), where or missing))
bouncer = pgbouncer.program()
missing = "missing: its tests are skipped; " + pgbouncer.INSTALL
rows.append(("PgBouncer", "", str(bouncer) if bouncer else missing))
browser = chromium.program()
missing = "missing: its tests are skipped; " + chromium.INSTALL
rows.append(("Chromium", "", str(browser) if browser else missing))
watcher = prometheus.program()
missing = "missing: its tests are skipped; " + prometheus.INSTALL
rows.append(("Prometheus", "", str(watcher) if watcher else missing))
for shell in ("zsh", "fish"):
    missing = "missing: its tests are skipped; " + shells.INSTALL
    rows.append((shell, "", str(shells.program(shell) or missing)))
for row in rows:
    print("  {:<12} {:<10} {}".format(*row))
"""


class Failure(Exception):
    """The command cannot go on; the message is all that its reader needs."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    os.chdir(ROOT)
    hands_on = argv[:1] and argv[0] in HANDS_ON and argv[1:] not in (["-h"], ["--help"])
    options = parse(argv[:1] if hands_on else argv)
    try:
        return command(options, argv[1:])
    except Failure as failure:
        print(f"dev: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return 130


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="dev.py", description="Set up, check, test and run Windlass.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    setting_up = commands.add_parser("setup", help="make .venv and install what is pinned")
    setting_up.add_argument("--fresh", action="store_true", help="throw the old environment away first")
    commands.add_parser("check", help="ruff, mypy, lint-imports, old words and the shape of the source")
    commands.add_parser("format", help="let ruff fix what it can and format the code")
    commands.add_parser("test", help="check, then pytest; what follows goes to pytest")
    commands.add_parser("test-fast", help="the tests that need no server, without the checks")
    commands.add_parser("others", help="the other supported Pythons of this machine, a path per line")
    commands.add_parser("run", help="windlass up; what follows goes to it")
    commands.add_parser("bench", help="python -m bench, with the servers that it needs")
    commands.add_parser("exec", help="any program of .venv; its name and arguments follow")
    locking = commands.add_parser("lock", help="write requirements-dev.txt anew")
    locking.add_argument("--upgrade", action="store_true", help="move every pin to its newest release")
    return parser.parse_args(argv)


def command(options: argparse.Namespace, rest: list[str]) -> int:
    """Carry out the command that was asked for."""
    if options.command == "lock":
        return lock(upgrade=options.upgrade)
    if options.command == "others":
        return others()
    setup(fresh=getattr(options, "fresh", False))
    actions: dict[str, Callable[[], int]] = {
        "setup": components,
        "check": check,
        "format": lambda: tool("ruff", "check", "--fix-only") or tool("ruff", "format"),
        "test": lambda: servers() or components() or check() or (tests(*rest) if rest else all_tests()),
        "test-fast": lambda: components() or tests(*FAST, *rest),
        "run": lambda: up(*rest),
        "bench": lambda: bench(*rest),
        "exec": lambda: become(*rest),
    }
    return actions[options.command]()


def setup(*, fresh: bool) -> None:
    """Make the environment what the two files say, or do nothing if it is that already."""
    with alone():
        wanted = "".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in (REQUIREMENTS, PYPROJECT))
        if fresh or not STAMP.exists() or not program("python").exists():
            make_venv(VENV)
        if not STAMP.exists() or STAMP.read_text() != wanted:
            install()
            STAMP.write_text(wanted)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep a second setup of this tree waiting: two installers in one environment break it."""
    with VENV.with_name(f"{VENV.name}.lock").open("w") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv(folder: Path) -> None:
    """Make a new environment with nothing but pip in it."""
    if importlib.util.find_spec("ensurepip") is None:
        package = "python{}.{}-venv".format(*sys.version_info)
        raise Failure(f"this Python has no ensurepip; on Debian or Ubuntu: apt-get install {package}", code=2)
    try:
        venv.create(folder, clear=True, symlinks=sys.platform != "win32", with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"no environment could be made in {folder}: {error}") from None


def install() -> None:
    """Install the pinned packages, then this tree in place."""
    print(f"dev: installing requirements-dev.txt into {VENV.name}", flush=True)
    pip("--require-hashes", "-r", str(REQUIREMENTS), why="the pinned packages could not be installed")
    # The build tool is one of the pinned packages, so that this step fetches nothing.
    pip("--no-deps", "--no-build-isolation", "-e", ".", why="windlass itself could not be installed")


def others() -> int:
    """Print every other supported Python that this machine has, and say which ones it lacks."""
    for version in supported():
        if version == "{}.{}".format(*sys.version_info):
            continue
        if found := next((path for path in places(version) if is_python(path, version)), None):
            print(found)
        else:
            print(f"dev: this machine has no Python {version}: nothing is tested with it", file=sys.stderr)
    return 0


def supported() -> list[str]:
    """The versions of Python that the package says it runs on."""
    prefix = "Programming Language :: Python :: 3."
    with PYPROJECT.open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    return [f"3.{each.removeprefix(prefix)}" for each in classifiers if each.startswith(prefix)]


def places(version: str) -> Iterator[str]:
    """Where a Python of that version may be: on the PATH, or among those of pyenv that are not on it."""
    name = f"python{version}"
    if on_path := shutil.which(name):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"), reverse=True):
        yield str(path)


def is_python(path: str, version: str) -> bool:
    """Whether it runs and is what its name says: pyenv's stand-ins are on the PATH for all versions."""
    asked = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        told = subprocess.run([path, "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.stdout.strip() == version


def servers() -> int:
    """In CI, install the servers that are missing. At home their tests are skipped and say what to type."""
    wanted = missing(TESTED)
    if not wanted or not os.environ.get("CI"):
        return 0
    if not may_install():
        raise Failure(f"CI needs {' and '.join(wanted)}, which only root can install by apt-get", code=2)
    apt(wanted)
    return 0


def bench(*args: str) -> int:
    """Measure, on servers that are installed where we may; without one, those who need it are left out."""
    wanted = missing(MEASURED)
    if wanted and may_install():
        apt(wanted)
    elif wanted:
        print(f"dev: for all of it, as root: apt-get install {' '.join(wanted)}", file=sys.stderr)
    return become("python", "-m", "bench", *args)


def missing(packages: dict[str, Path]) -> list[str]:
    """Which of these packages are not here."""
    return [
        package
        for package, program in packages.items()
        if not program.exists() and shutil.which(program.name) is None
    ]


def may_install() -> bool:
    """Whether we can install packages of the system."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def apt(packages: list[str]) -> None:
    """Install packages of the system."""
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    must("apt-get", "-qq", "update", why="the list of packages could not be fetched")
    words = ("-qq", "-y", "--no-install-recommends", "install")
    must("apt-get", *words, *packages, why=f"{' and '.join(packages)} could not be installed")


def components() -> int:
    """Show what the tests will run on."""
    code = run(str(program("python")), "-c", COMPONENTS)
    if code:
        raise Failure(
            f"the environment is broken; make it again: {sys.executable} scripts/dev.py setup --fresh", code
        )
    return 0


def check() -> int:
    """Run every check, also after one has failed, and return the first exit code that is not 0."""
    codes = [tool(*words) for words in CHECKS]
    return next((code for code in codes if code), 0)


def lock(*, upgrade: bool) -> int:
    """Pin every package with its hashes, for all platforms, without the name of any host."""
    with tempfile.TemporaryDirectory() as scratch:
        uv = shutil.which("uv") or uv_in(Path(scratch))
        flags = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--group=dev"]
        flags += ["--upgrade"] if upgrade else []
        files = [PYPROJECT.name, "--output-file", REQUIREMENTS.name]
        must(uv, "pip", "compile", *flags, *files, why="the requirements could not be resolved")
    pins = REQUIREMENTS.read_text()
    if "://" in pins:
        raise Failure("requirements-dev.txt names a host: take the index out of uv's settings and lock again")
    REQUIREMENTS.write_text(REQUIREMENTS_HEADER + pins)
    return 0


def uv_in(folder: Path) -> str:
    """Install uv for this one use."""
    make_venv(folder)
    pip("uv", why="uv could not be installed", folder=folder)
    return str(program("uv", folder))


def pip(*args: str, why: str, folder: Path = VENV) -> None:
    """Install something that has to be installed."""
    quietly = ("--disable-pip-version-check", "--no-input", "-qq")
    must(str(program("python", folder)), "-m", "pip", "install", *quietly, *args, why=why)


def tool(name: str, *args: str) -> int:
    """Say and run a program of the environment, and return its exit code."""
    print("+", name, *args, flush=True)
    return run(str(program(name)), *args)


def all_tests() -> int:
    """Run every test: first those that measure coverage, then the others, also after a failure."""
    folders = sorted(path for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py")))
    others = [f"tests/{path.name}" for path in folders if path.name not in COVERED]
    others += [UNTRACED] if (ROOT / UNTRACED).exists() else []
    covered = [f"tests/{name}" for name in COVERED]
    if sys.version_info >= (3, 12):
        # By sys.monitoring, which costs next to nothing; older versions are traced, a third slower.
        os.environ.setdefault("COVERAGE_CORE", "sysmon")
    codes = [tests(*covered, f"--ignore={UNTRACED}", *COVERAGE), tests(*others)]
    return next((code for code in codes if code), 0)


def tests(*args: str) -> int:
    """Run tests. What Python compiles is kept also where the environment says not to.

    Otherwise every process of the tests compiles all of Windlass, and every one of pytest all tests.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return tool("pytest", "-n", "3", *args)


def become(name: str = "python", *args: str) -> int:
    """Run a program of the environment in place of this one, so that signals reach it."""
    path = str(program(name))
    if sys.platform == "win32":
        return run(path, *args)
    try:
        os.execv(path, [path, *args])
    except OSError as error:
        raise Failure(f"{name} does not start: {error.strerror}", code=127) from None


def up(*args: str) -> int:
    """Start a worker with demo jobs and the HTTP API, in the foreground of the terminal.

    Ctrl-C must reach it alone: make, which waits for it, would take it for a failure of its own.
    """
    take_terminal()
    return become("windlass", "up", *args)


def take_terminal() -> None:
    """Become the group that the terminal's keys reach, if standard input is the terminal of our session."""
    if sys.platform == "win32":
        return
    # Standard input may be no terminal, or that of another session, which has no group of ours.
    with contextlib.suppress(OSError):
        os.tcgetpgrp(sys.stdin.fileno())
        # Whoever leads a session leads its group already, and must not ask for that.
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def program(name: str, folder: Path = VENV) -> Path:
    """Return where an environment keeps a program."""
    return folder / "Scripts" / f"{name}.exe" if sys.platform == "win32" else folder / "bin" / name


def must(*words: str, why: str) -> None:
    """Run a program that has to succeed."""
    code = run(*words)
    if code:
        raise Failure(why, code)


def run(*words: str) -> int:
    """Run a program to its end. Ctrl-C reaches it too, and is passed on once it is done."""
    try:
        process = subprocess.Popen(words)
    except OSError as error:
        raise Failure(f"{words[0]} does not start: {error.strerror}", code=127) from None
    interrupted = False
    while process.returncode is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
