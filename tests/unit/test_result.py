"""Does a run's result say what held, and can `make evidence` read it?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.history.result import Promise, Result, distribution, few, file_for, write_result


def test_a_result_is_one_object_with_all_that_evidence_shows(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(
        path,
        name="kill-run",
        store="sqlite",
        injected={"kills": 20},
        counts={"accepted": 5000, "lost": 0},
        promises=[Promise("nothing is lost", held=True), Promise("in time", held=False, detail="17 s")],
        recovery_seconds=[0.5, 0.25],
        seed=7,
    )
    found = json.loads(path.read_text())
    assert found["name"] == "kill-run"
    assert found["injected"] == {"kills": 20}
    assert found["promises"][1] == {"promise": "in time", "held": False, "detail": "17 s"}
    assert found["recovery_seconds"] == [0.25, 0.5]
    assert {"date", "commit", "machine", "load", "store", "counts", "seed", "versions"} <= found.keys()


def test_a_run_holds_only_if_each_promise_did(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result("kill-run", "sqlite:///jobs.db")
    assert not result.close()
    result.promise("nothing is lost", 0, held=True)
    assert result.close()
    result.promise("in time", "17 s", held=False)
    assert not result.close()
    assert "BROKEN  in time: 17 s" in capsys.readouterr().out


def test_several_runs_have_a_file_each() -> None:
    path = Path("results/storm.json")
    assert file_for(path, "sqlite", several=False) == path
    assert file_for(path, "sqlite", several=True) == Path("results/storm-sqlite.json")
    assert file_for(None, "sqlite", several=True) is None


def test_a_distribution_has_its_ends_and_quantiles() -> None:
    found = distribution(range(100))
    assert found == {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 99}
    assert distribution([]) == {}


def test_only_a_few_of_many_are_shown() -> None:
    assert few([1, 2]) == "1, 2"
    assert few(range(9)) == "0, 1, 2, 3, 4 ... (9)"
