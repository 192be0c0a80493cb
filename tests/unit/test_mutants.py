"""Can every planted bug still be planted, and are there as many of each kind as promised?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import mutants

LEAST, LEAST_REAL, LEAST_INTERLEAVED = 24, 12, 8


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda each: each.name)
def test_a_planted_bug_changes_one_place_of_the_source(mutant: mutants.Mutant) -> None:
    text = (mutants.ROOT / "src/windlass" / mutant.file).read_text()
    assert text.count(mutant.right) == 1
    assert text.replace(mutant.right, mutant.wrong) != text


def test_half_of_the_planted_bugs_were_real_and_many_need_an_interleaving() -> None:
    names = [each.name for each in mutants.MUTANTS]
    assert len(set(names)) == len(names) >= LEAST
    assert sum(bool(each.real) for each in mutants.MUTANTS) >= LEAST_REAL
    assert sum(each.store == "postgres" for each in mutants.MUTANTS) >= LEAST_INTERLEAVED
