"""Keep the old words out of new text: `make words` counts them, `make check` fails where a count has risen.

`words.json` beside this file has the counts per word and area. They may only fall: `--save` writes the
present ones, and refuses to write a larger one. It also writes the lists in CONTRIBUTING.md and the glossary.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".json")
AREAS = {
    "src": ("src",),
    "docs": ("docs", "README.md", "CONTRIBUTING.md", "bench/README.md", "deploy"),
    "tests": ("tests", "scripts", "examples", "Makefile"),
}
KINDS = {".py", ".sql", ".js", ".html", ".md", ".yml", ".yaml", ".toml", ""}
LISTED = ("CONTRIBUTING.md", "docs/glossary.md")
BEGIN, END = "<!-- old words -->", "<!-- end of old words -->"
# What is shown of each rise.
MOST_PLACES = 10


class Word(NamedTuple):
    """An old word: a pattern of whole words, how the lists show it, and what to write instead."""

    shown: str
    pattern: str
    instead: str

    def found(self, line: str) -> bool:
        """Whether a line has it: as a word of its own, or as a part of a name with underscores.

        The name of a test counts where the test is, not on the pages that list it.
        """
        line = re.sub(r"\.py::\w+", "", line.lower())
        return re.search(rf"(?<![a-z])(?:{self.pattern})(?![a-z])", line) is not None


WORDS = (
    Word("told, tell, tells, telling", "told|tells?|telling", "notify, report, show, say; a person may tell"),
    Word("whoever, whomever", "who(?:m)?ever", "the caller, the process that, anyone who"),
    Word("nobody, somebody", "nobody|somebody", "no one, no process; a person, another process"),
    Word("anew", "anew", "again, from scratch"),
    Word("mend", "mends?|mended|mending", "fix, repair"),
    Word("stands in the way", "stands? in the way", "is blocked by, blocks"),
    Word("stand, stands", "stands?", "is, is kept, holds"),
    Word("so many, so much", "so many|so much", "a number, or what is counted"),
    Word("dear", "dear(?:er|est)?", "expensive, slow"),
    Word("his, himself", "his|himself", "its, the caller's"),
    Word("not to be had", "not to be had", "not available"),
    Word("has not got", "(?:has|have|had) not got|hasn't got|haven't got", "does not have"),
    Word("lately", "lately", "recently, in the last N seconds"),
    Word("standing", "standing", "membership (of a worker), sample (of depths)"),
    Word("tally", "tally|tallies", "breaker counts"),
    Word("gates", "gates?", "admission"),
    Word("terms", "terms", "live settings, limits"),
    Word("warden", "warden", "timeouts"),
    Word("hunger", "hunger|hungry", "poll triggers"),
    Word("intake", "intake", "group commit"),
)


def main() -> int:
    """Check, save or print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write the present counts; they may only fall")
    options = parser.parse_args()
    found = {area: {word.shown: _places(area, word) for word in WORDS} for area in AREAS}
    counts = {area: {name: len(places) for name, places in words.items()} for area, words in found.items()}
    known: dict[str, dict[str, int]] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    risen = [
        (area, word)
        for area in AREAS
        for word in WORDS
        if counts[area][word.shown] > known.get(area, {}).get(word.shown, sys.maxsize)
    ]
    for area, word in risen:
        before, now = known[area][word.shown], counts[area][word.shown]
        print(f"{area}: {now} lines with {word.shown!r}, {before} before. Write instead: {word.instead}")
        for place in _new(area, word) or found[area][word.shown][:MOST_PLACES]:
            print(f"  {place}")
    if options.save and not risen:
        TABLE.write_text(json.dumps(counts, indent=1) + "\n")
        for name in LISTED:
            (ROOT / name).write_text(_listed(name), encoding="utf-8")
    elif stale := [name for name in LISTED if (ROOT / name).read_text(encoding="utf-8") != _listed(name)]:
        print(f"the list of old words is out of date in {', '.join(stale)}: scripts/words.py --save")
        return 1
    if not risen:
        total = sum(sum(words.values()) for words in counts.values())
        print(f"words: {total:,} lines with old words, none of them new")
    return int(bool(risen))


def _places(area: str, word: Word) -> list[str]:
    return [f"{path}:{number}: {line.strip()}" for path, number, line in _lines(area) if word.found(line)]


def _lines(area: str) -> Iterator[tuple[str, int, str]]:
    """Every line of an area; the lists of old words themselves are left out."""
    if area not in _READ:
        _READ[area] = [
            (name, number, line)
            for name in _files(area)
            for number, line in _of_file((ROOT / name).read_text(encoding="utf-8"))
        ]
    yield from _READ[area]


def _files(area: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *AREAS[area]]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [
        name
        for name in listed
        if name
        and Path(name).suffix in KINDS
        and (ROOT / name).is_file()
        and not name.startswith("scripts/words.")
    ]


def _of_file(text: str) -> Iterator[tuple[int, str]]:
    listed = False
    for number, line in enumerate(text.split("\n"), 1):
        listed = (listed or line == BEGIN) and line != END
        if not listed:
            yield number, line


def _new(area: str, word: Word) -> list[str]:
    """The lines with a word that came in since the table was last saved, as far as git knows."""
    saved = _git("log", "-1", "--format=%H", "--", str(TABLE)).strip()
    if not saved:
        return []
    places: list[str] = []
    path, number = "", 0
    for line in _git("diff", "-U0", "--no-color", saved, "--", *AREAS[area]).split("\n"):
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("@@"):
            number = int(re.findall(r"\+(\d+)", line)[0]) - 1
        elif line.startswith("+"):
            number += 1
            if word.found(line):
                places.append(f"{path}:{number}: {line[1:].strip()}")
    return places


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def _listed(name: str) -> str:
    """A page with the list of old words as it should be."""
    page = (ROOT / name).read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_rows(WORDS)}\n{END}{after}"


def _rows(words: Iterable[Word]) -> str:
    rows = [f"| {word.shown} | {word.instead} |" for word in words]
    return "\n".join(["| do not write | write |", "|---|---|", *rows])


_READ: dict[str, list[tuple[str, int, str]]] = {}

if __name__ == "__main__":
    raise SystemExit(main())
