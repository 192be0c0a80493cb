"""Are the SQL texts whole, alike in every dialect, and written by the house rules?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.store import migration, statements

SHELF = Path(statements.__file__).parent
SECTIONS = [(f"{name} {only}".strip(), text) for name, only, text in statements.sections()]
IDS = [label for label, _ in SECTIONS]
DIALECTS = sorted(folder.name for folder in (SHELF / "migrations").iterdir() if folder.is_dir())


def test_there_are_statements_for_every_dialect_that_has_migrations() -> None:
    assert "sqlite" in DIALECTS
    assert all(statements.load(dialect) for dialect in DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_of_both_dialects_binds_the_same_names(dialect: str) -> None:
    """A statement that only one store has stands in a section of its dialect; shared verbs never name it."""
    ours, first = statements.load(dialect), statements.load(DIALECTS[0])
    for name in ours.keys() & first.keys():
        assert statements.parameters(ours[name]) == statements.parameters(first[name]), name


@pytest.mark.parametrize("path", sorted(SHELF.glob("*.py")), ids=lambda path: path.name)
def test_the_shared_verbs_find_their_statements_in_every_dialect(path: Path) -> None:
    named = set(re.findall(r'tx\.(?:rows|row|change)\(\s*"(\w+)"', path.read_text(encoding="utf-8")))
    for dialect in DIALECTS:
        assert named <= set(statements.load(dialect))


def test_a_section_of_one_dialect_wins_over_the_shared_one() -> None:
    texts = statements.load("sqlite")
    for name, only, text in statements.sections():
        if only == "sqlite":
            assert texts[name] == statements.spelled(text, "sqlite")


def test_no_statement_is_written_twice_for_a_dialect() -> None:
    assert len(set(IDS)) == len(IDS)


def test_every_statement_stands_in_a_named_section() -> None:
    files = [path for path in SHELF.rglob("*.sql") if "migrations" not in path.parts]
    assert files
    for path in files:
        assert path.read_text(encoding="utf-8").startswith("-- name: "), path
    assert sum(path.read_text(encoding="utf-8").count("-- name: ") for path in files) == len(SECTIONS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_without_gaps_and_say_whether_they_expand_or_contract(dialect: str) -> None:
    found = migration.load(dialect)
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert {each.kind for each in found} <= set(migration.Kind)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_the_same_migrations(dialect: str) -> None:
    names = [(each.label, each.kind) for each in migration.load(dialect)]
    assert names == [(each.label, each.kind) for each in migration.load(DIALECTS[0])]


def test_names_become_numbers_in_the_order_of_their_first_use() -> None:
    assert statements.numbered("select :b, :a, :b, c::text") == ("select $1, $2, $1, c::text", ("b", "a"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select :one, :two_words, :one", {"one", "two_words"}),
        ("select cast('12:30' as text), a::text, :b", {"b"}),
        ("select 1", set()),
    ],
)
def test_parameters_are_found_and_casts_are_not(text: str, names: set[str]) -> None:
    assert statements.parameters(text) == names


def test_a_name_becomes_a_question_mark_wherever_it_stands() -> None:
    assert statements.unnamed("(:b, 'x', :a, c::text)") == "(?, 'x', ?, c::text)"


def test_a_row_that_is_repeated_has_each_name_once() -> None:
    repeated = [row for _, text in SECTIONS for row in _code(text).split("/*row*/")[1::2]]
    assert repeated
    for row in repeated:
        assert statements.unnamed(row).count("?") == len(statements.parameters(row)), row


@pytest.mark.parametrize("text", [text for _, text in SECTIONS], ids=IDS)
def test_a_statement_says_why_first(text: str) -> None:
    assert text.startswith("-- ")


@pytest.mark.parametrize(("label", "text"), SECTIONS, ids=IDS)
def test_a_statement_reads_no_clock_of_its_own(label: str, text: str) -> None:
    """Except PostgreSQL's, where the server's clock is the store's: and only when no time is given."""
    code = _code(text).replace("coalesce(cast(:now as bigint), windlass.now())", "")
    if label == "time postgres":
        return
    assert not re.search(r"\b(now|unixepoch|julianday|datetime|strftime|current_timestamp)\b\s*(\(|$)", code)


# These change jobs that nobody runs, or, like claim and request, end no attempt.
UNFENCED = {
    *(
        "adopt",
        "bury",
        "claim",
        "claim_batch",
        "claim_few",
        "claim_limited",
        "edit",
        "offer_unread",
        "promote",
        "promote_type",
        "promote_types",
        "prune_dead",
        "unread_due",
    ),
    *("hold_unique", "replace_unique", "retake_unique", "remove_idle", "remove_new", "replay", "request"),
    # About whom a job waits for, or which batch it is of.
    *("join_batch", "mark_parent", "release_dependent", "wait_for_parents", "wait_no_more"),
}


TAKES_DUE_JOBS = {
    "claim_limited",
    "claim",
    "claim_batch",
    "claim_few",
    "offer_unread",
    "promote",
    "promote_type",
    "promote_types",
    "remove_new",
}


def test_whatever_takes_a_job_out_of_processing_is_fenced_by_its_token() -> None:
    writes = re.compile(r"\b(update|delete from)\s+windlass\.jobs\b")
    writing = {label.split()[0]: _code(text) for label, text in SECTIONS if writes.search(_code(text))}
    fence = re.compile(r"\btoken = (:token|\w\.token)\b")
    assert {name for name, text in writing.items() if not fence.search(text)} == UNFENCED


@pytest.mark.parametrize("name", sorted(UNFENCED - TAKES_DUE_JOBS))
def test_an_unfenced_change_says_which_state_it_expects(name: str) -> None:
    condition = statements.load("sqlite")[name].rpartition("where")[2]
    assert re.search(r"state (= |in \()", condition)


def _code(text: str) -> str:
    return "\n".join(line.split("--")[0] for line in text.lower().splitlines())
