"""F-29: a server dies while jobs come in, or its database goes away. Every accepted key exists, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.conftest import NEW
from tests.crash.storm import RULES, availability, misled, post_while_away, post_while_killed
from tests.history.check import check
from tests.history.end import look
from tests.history.record import Reader, Recorder
from tests.server.conftest import serving, shop
from tests.servers import postgres, standby

POSTS = 300
MAJOR = 15
# `make server-kill` has it away for 15 s.
AWAY_SECONDS = 3.0


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", next(name for name in NEW if name != "sqlite")])
def test_f29_kills_at_random_lose_no_accepted_job_and_make_none_twice(engine: str, tmp_path: Path) -> None:
    with NEW[engine]() as url, shop(url) as queue:
        queue.publish()
        recorder = Recorder(tmp_path / "history")
        assert post_while_killed(url, recorder, POSTS, pause=(2.0, 4.0), spread=0.3) >= 1
        calls = Reader(recorder.path).read()
        assert availability(calls) == (POSTS, POSTS)
        assert check(calls, look(queue.store, url), RULES).problems == []


@pytest.mark.crash
@pytest.mark.slow
def test_while_postgres_is_away_who_tries_again_loses_nothing_and_others_are_told_when_to_come(
    tmp_path: Path,
) -> None:
    standby.required(MAJOR)
    with postgres.running(MAJOR) as server:
        url = server.new_database()
        # A server waits for its store for a while before it says 503.
        with shop(url, patience=5) as queue:
            with serving(queue) as house:
                recorder = Recorder(tmp_path / "history")
                crowd, _ = post_while_away(server, house.url, recorder, AWAY_SECONDS)
            assert check(Reader(recorder.path).read(), look(queue.store, url), RULES).problems == []
            assert misled(crowd) == []
