"""What the proving ground makes of its rounds: medians, aims, the comparison, the report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from bench import cases, contenders, load, quick, report, summary
from bench.__main__ import _failures, _install
from bench.aims import aims
from bench.places import Places, statements_in
from bench.plot import Bar, bars
from bench.results import Entrant, Figure, Results, Run


def some(*runs: Run) -> Results:
    entrants = {
        run.contender: Entrant(title=run.contender, store="postgres", version="1", settings="defaults")
        for run in runs
    }
    return Results(
        made="2026-11-16T00:00:00+00:00",
        commit="abc",
        scale=1.0,
        rounds=3,
        machine={"cores": "2"},
        servers={},
        entrants=entrants,
        runs=list(runs),
    )


def rates(case: str, contender: str, *values: float) -> list[Run]:
    return [
        Run(case=case, contender=contender, round=number, figures={"rate": value})
        for number, value in enumerate(values, 1)
    ]


def test_a_figure_is_the_median_of_the_rounds_with_their_spread() -> None:
    found = some(*rates("drain_one", "pgqueuer", 5, 20, 10)).figure("drain_one", "pgqueuer", "rate")
    assert found == Figure(median=10, low=5, high=20, rounds=3)
    assert found.spread == 1.5


def test_what_was_not_measured_is_no_figure_but_has_a_reason() -> None:
    results = some(Run(case="bulk", contender="huey", round=1, cannot="has no bulk enqueue"))
    assert results.figure("bulk", "huey", "rate") is None
    assert results.why_not("bulk", "huey") == "has no bulk enqueue"


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = some(
        *rates("drain_one", "pgqueuer", 5, 20), Run(case="bulk", contender="saq", round=1, failed="x")
    )
    results.save(tmp_path / "deep" / "results.json")
    assert Results.load(tmp_path / "deep" / "results.json") == results


def test_an_aim_is_reached_by_the_ratio_of_medians() -> None:
    results = some(
        *rates("drain_one", "windlass-postgres", 250, 260, 100), *rates("drain_one", "pgqueuer", 100, 100, 9)
    )
    reached = {(aim.case, aim.wanted): aim.reached for aim in aims(results)}
    assert reached["drain, one process, PostgreSQL", "at least 2.5 times PgQueuer"] is True
    assert reached["drain, one process, PostgreSQL", "at least 0.7 times PostgreSQL itself"] is None


def test_the_best_peer_is_taken_among_those_on_the_same_store() -> None:
    results = some(
        *rates("enqueue_ten", "windlass-postgres", 300),
        *rates("enqueue_ten", "saq", 90),
        *rates("enqueue_ten", "pgqueuer", 101),
        *rates("enqueue_ten", "dramatiq", 9000),
        *rates("enqueue_ten", "raw-postgres", 9000),
    )
    aim = next(aim for aim in aims(results) if "times PgQueuer" in aim.wanted and "enqueue" in aim.case)
    assert aim.reached is False
    assert aim.measured == "2.97 (300/s beside 101/s)"


def test_a_job_that_never_came_back_misses_the_aim() -> None:
    figures = {"back": None, "missing": 1, "doubled": 0, "limit": 90.0}
    results = some(Run(case="recovery", contender="windlass-postgres", round=1, figures=figures))
    lost = [aim for aim in aims(results) if aim.wanted == "nothing lost" and "PostgreSQL" in aim.case]
    assert [aim.reached for aim in lost] == [False]


@pytest.mark.parametrize(("now", "fallen"), [(1.0, False), (0.86, False), (0.84, True), (2.0, False)])
def test_a_share_has_fallen_below_85_percent_of_what_it_was(now: float, fallen: bool) -> None:  # noqa: FBT001
    (change,) = quick.changes({"drain": [0.9, 1.0, 9.0]}, {"drain": [now, now, 0.0, 9.0, now], "new": [1.0]})
    assert change.is_fallen is fallen


def test_pairs_that_lie_far_apart_prove_no_fall() -> None:
    (noisy,) = quick.changes({"drain": [1.0]}, {"drain": [0.5, 0.6, 0.7, 1.2, 1.3]})
    assert (noisy.ratio, noisy.is_fallen) == (0.7, False)


def test_every_share_has_both_its_sides() -> None:
    for share in quick.SHARES:
        assert {f"windlass-{share.store}", f"raw-{share.store}"} <= set(contenders.BY_NAME)


def test_the_report_has_a_plot_for_each_case_and_names_who_cannot(tmp_path: Path) -> None:
    results = some(
        *rates("drain_one", "windlass-postgres", 20_000, 21_000),
        *rates("bulk", "windlass-postgres", 1),
        Run(case="bulk", contender="saq", round=1, cannot="has no bulk <enqueue>"),
    )
    report.write(results, tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "| **windlass-postgres** | 20,500 | 5% |" in page
    assert "- saq: has no bulk <enqueue>." in page
    for name in ("drain_one_rate.svg", "bulk_rate.svg"):
        assert f"plots/{name}" in page
        ET.fromstring((tmp_path / "plots" / name).read_text())  # noqa: S314 - our own


def test_what_a_peer_leaves_out_is_under_its_rates_only(tmp_path: Path) -> None:
    results = some(*rates("drain_one", "bullmq", 20), *rates("bulk", "bullmq", 10))
    results.entrants["bullmq"] = replace(results.entrants["bullmq"], leaves_out="history")
    report.write(results, tmp_path)
    drain, _, rest = (tmp_path / "report.md").read_text().partition("## Drain")[2].partition("\n## ")
    assert "- bullmq leaves out: history." in drain
    assert "leaves out" not in rest


def test_without_node_its_peers_are_left_out_by_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert _install(contenders.chosen("graphile-worker,pg-boss,bullmq")) == []
    why = "needs Node 20 or newer with npm, which is not here"
    assert capsys.readouterr().out == f"bench: left out: graphile-worker, pg-boss, bullmq: {why}\n"


def test_bars_grow_with_their_values() -> None:
    drawing = ET.fromstring(  # noqa: S314 - our own
        bars(
            "t",
            "s",
            [Bar("a", "ours", 10, 9, 11, "10"), Bar("b", "peer", 5, 5, 5, "5"), Bar("c", "peer", None)],
        )
    )
    widths = [float(each.attrib["width"]) for each in drawing.findall("{*}rect")[1:]]
    assert widths == [pytest.approx(2 * widths[1], abs=0.2), widths[1]]


def test_a_run_that_must_fit_into_minutes_is_made_smaller() -> None:
    everything = (list(cases.ALL), list(contenders.ALL), 3)
    full = cases.estimate(*everything, 1.0)
    scale = cases.scale_for(*everything, full * 0.8)
    assert cases.estimate(*everything, scale) <= full * 0.8 < cases.estimate(*everything, scale + 0.01)
    assert cases.scale_for(*everything, full * 2) == 1.0


@pytest.mark.parametrize("choose", [cases.chosen, contenders.chosen])
def test_an_unknown_name_is_refused_with_those_that_there_are(choose: object) -> None:
    assert callable(choose)
    with pytest.raises(ValueError, match="'nobody'; there are"):
        choose("nobody")


def test_every_contender_has_its_pins_and_every_pin_is_exact() -> None:
    pins = Path(contenders.__file__).parent / "peers"
    for contender in contenders.ALL:
        of_npm = pins / f"{contender.pins}.json"
        if of_npm.exists():
            versions = json.loads(of_npm.read_text())["dependencies"]
            assert contender.pins in versions
            assert all(re.fullmatch(r"\d+\.\d+\.\d+[\w.-]*", each) for each in versions.values()), (
                contender.pins
            )
            continue
        lines = (pins / f"{contender.pins}.txt").read_text().split()
        assert lines
        assert all("==" in line for line in lines), contender.pins


def test_the_readme_gets_its_table_between_the_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n")
    never = {"back": None, "missing": 1, "limit": 90.0}
    results = some(
        *rates("drain_one", "windlass-postgres", 20_000),
        Run(case="recovery", contender="rq", round=1, figures=never),
    )
    for _ in range(2):
        summary.put(results, readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{summary.BEGIN}\n| | Windlass<br>PostgreSQL | PgQueuer |")
    assert text.endswith(f"\n{summary.END}\nafter\n")
    assert "old" not in text
    assert "| drain, one process, jobs/s | 20,000 | - |" in text
    assert "not within 90" in text


def shares(**pairs: float) -> quick.Shares:
    each = {name: [value] * 5 for name, value in pairs.items()}
    return quick.Shares(made="2026-11-16", commit="abc", machine={}, pairs=each)


@pytest.mark.parametrize(("again", "code"), [(0.99, 0), (0.5, 1)])
def test_what_seems_fallen_is_named_only_if_it_fell_twice(
    again: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str] | None] = []

    def measure(places: Places, tell: quick.Tell, only: set[str] | None = None) -> quick.Shares:
        asked.append(only)
        return shares(drain=again)

    monkeypatch.setattr(quick, "QUICK", tmp_path / "quick.json")
    monkeypatch.setattr(quick, "measure", measure)
    shares(drain=1.0, bulk=1.0).save(tmp_path / "quick.json")
    told: list[str] = []
    with Places() as places:
        assert quick.judge(places, shares(drain=0.6, bulk=0.9), told.append) == code
    assert asked == [{"drain"}], "only the suspect"
    assert [line.split()[0] for line in told if "FALLEN" in line] == ["drain"] * code


def test_a_share_that_was_disturbed_too_often_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "QUICK", tmp_path / "quick.json")
    shares(drain=1.0, bulk=1.0).save(tmp_path / "quick.json")
    found = shares(bulk=1.0)
    found.pairs["drain"] = [0.5] * 4
    told: list[str] = []
    with Places() as places:
        assert quick.judge(places, found, told.append) == 0
    assert [line.split()[0] for line in told if "not judged" in line] == ["drain"]


def test_what_we_do_ourselves_is_not_taken_for_others() -> None:
    spin = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    with load.others() as others:
        subprocess.run([sys.executable, "-c", spin], check=True)
    assert others.share <= 1.0
    before = load._ours()  # noqa: SLF001 - of one that ended its parent knows
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert load._ours() - before >= 0.28  # noqa: SLF001


@pytest.mark.parametrize(("who", "code"), [("pgqueuer", 0), ("windlass-postgres", 1), ("raw-sqlite", 1)])
def test_a_peer_that_fails_is_named_but_only_our_own_failure_is_one(
    who: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _failures(some(Run(case="bulk", contender=who, round=1, failed="broke"))) == code
    assert f"{who} failed in bulk: broke" in capsys.readouterr().err


def test_the_report_says_why_an_aim_was_not_reached(tmp_path: Path) -> None:
    (tmp_path / "not-reached.md").write_text("The disk is slow.\n")
    report.write(some(*rates("bulk", "windlass-postgres", 1)), tmp_path)
    assert "## What is not reached, and why\n\nThe disk is slow.\n" in (tmp_path / "report.md").read_text()


def test_cheap_cases_keep_their_size_for_longer_than_crowds() -> None:
    assert cases.size_of(cases.BY_NAME["enqueue_ten"], 0.4) == 1.0
    assert cases.size_of(cases.BY_NAME["crowd_other"], 0.4) == 0.4


def test_nothing_to_compare_with_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "QUICK", tmp_path / "quick.json")
    with Places() as places, pytest.raises(FileNotFoundError, match="make bench-quick ARGS=--save"):
        quick.judge(places, shares(drain=1.0), print)


def test_only_what_the_sessions_of_a_database_ask_is_counted() -> None:
    log = (
        "test_1_1 LOG:  statement: begin\n"
        "test_1_1 LOG:  execute _pg3_0: -- why\n\tselect 1\n"
        "test_1_1 DETAIL:  parameters: $1 = 'test_1_1 LOG:  statement: no'\n"
        "test_1_1 LOG:  duration: 1.5 ms\n"
        "test_1_10 LOG:  statement: of another\n"
        " LOG:  automatic vacuum of table\n"
    )
    assert statements_in(log, "test_1_1") == 2
