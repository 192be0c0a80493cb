"""Where does a configured value come from, and what is refused?"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from windlass.config import Config, Source, load, unknown_variables, variable
from windlass.errors import InvalidValue


def _load(folder: Path, *, toml: str = "", environ: dict[str, str] | None = None, **flags: object) -> Config:
    if toml:
        (folder / "windlass.toml").write_text(toml)
    return load(
        {name.replace("__", "."): value for name, value in flags.items()},
        environ=environ or {},
        folder=folder,
    )


def test_without_anything_the_defaults_hold_and_say_so(tmp_path: Path) -> None:
    config = _load(tmp_path)
    assert config.database_url == "sqlite:///windlass.db"
    assert config.app is None
    assert {value.source for value in config.values.values()} == {Source.DEFAULT}
    assert config.worker().threads == 10
    assert config.worker().shell is None, "the store decides"


@pytest.mark.parametrize(
    ("given", "expected", "source", "where"),
    [
        ((), 10, Source.DEFAULT, ""),
        (("file",), 11, Source.FILE, "windlass.toml"),
        (("file", "env"), 12, Source.ENV, "WINDLASS_WORKER_THREADS"),
        (("file", "env", "flag"), 13, Source.FLAG, "--threads"),
        (("file", "flag"), 13, Source.FLAG, "--threads"),
        (("env",), 12, Source.ENV, "WINDLASS_WORKER_THREADS"),
    ],
)
def test_flag_over_environment_over_file_over_default(
    tmp_path: Path, given: tuple[str, ...], expected: int, source: Source, where: str
) -> None:
    config = _load(
        tmp_path,
        toml="[worker]\nthreads = 11\n" if "file" in given else "",
        environ={"WINDLASS_WORKER_THREADS": "12"} if "env" in given else {},
        worker__threads=13 if "flag" in given else None,
    )
    found = config.values["worker.threads"]
    assert (found.value, found.source, found.where) == (expected, source, where)
    assert config.worker().threads == expected


def test_a_link_to_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").symlink_to("missing.toml")
    with pytest.raises(InvalidValue, match=r"must be a file that can be read \(the link leads nowhere"):
        _load(tmp_path)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    config = _load(tmp_path, environ={"WINDLASS_DATABASE_URL": ""})
    assert config.values["database_url"].source is Source.DEFAULT


def test_every_kind_of_value_is_read_from_the_file(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        toml="""
            database_url = "sqlite:///jobs.db"
            app = "shop:queue"
            [worker]
            concurrency = 4
            types = ["mail.*", "report"]
            shell = false
            lease = "2m"
            grace = 10
        """,
    )
    worker = config.worker()
    assert (config.database_url, config.app) == ("sqlite:///jobs.db", "shop:queue")
    assert (worker.concurrency, worker.types, worker.shell) == (4, ("mail.*", "report"), False)
    assert (worker.lease, worker.grace) == (timedelta(minutes=2), timedelta(seconds=10))


def test_every_kind_of_value_is_read_from_the_environment(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        environ={
            "WINDLASS_APP": "shop:queue",
            "WINDLASS_WORKER_TYPES": "mail.*, report",
            "WINDLASS_WORKER_SHELL": "off",
            "WINDLASS_WORKER_POLL": "500ms",
        },
    )
    worker = config.worker()
    assert (config.app, worker.types, worker.shell) == ("shop:queue", ("mail.*", "report"), False)
    assert worker.poll == timedelta(milliseconds=500)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[worker]\nthreds = 3", ["windlass.toml", "'worker.threds'", "worker.threads"]),
        ("[jobs]\nx = 3", ["windlass.toml", "'jobs.x'"]),
        ("max_attempts = 3", ["windlass.toml", "'max_attempts'"]),
        ("[worker]\nthreads = 'many'", ["worker.threads (windlass.toml)", "a whole number", "'many'"]),
        ("[worker]\nthreads = true", ["worker.threads (windlass.toml)", "a whole number", "True"]),
        ("[worker]\nthreads = 0", ["worker.threads (windlass.toml)", "between 1 and", "got 0"]),
        ("[worker]\nlease = '30s'", ["worker.lease (windlass.toml)", "between 60s and 3600s", "'30s'"]),
        ("[worker]\nlease = 'soon'", ["worker.lease (windlass.toml)", "duration", "'soon'"]),
        ("[worker]\ngrace = '40s'", ["worker.grace (windlass.toml)", "exit_after", "'40s'"]),
        ("[worker]\nshell = 3", ["worker.shell (windlass.toml)", "true or false"]),
        ("[worker]\ntypes = 3", ["worker.types (windlass.toml)", "patterns"]),
        ("[worker]\ntypes = ' , '", ["worker.types (windlass.toml)", "patterns"]),
        ("app = 3", ["app (windlass.toml)", "a text"]),
        ("worker: 3\n", ["windlass.toml", "valid TOML", "at line 1"]),
    ],
)
def test_nonsense_in_the_file_is_refused_with_its_name_and_what_is_allowed(
    tmp_path: Path, toml: str, words: list[str]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        _load(tmp_path, toml=toml)
    for word in words:
        assert word in str(refused.value)


def test_nonsense_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"worker\.poll \(WINDLASS_WORKER_POLL\) must be .*, got 'often'"):
        _load(tmp_path, environ={"WINDLASS_WORKER_POLL": "often"})


def test_unknown_variables_are_told_but_not_refused(tmp_path: Path) -> None:
    environ = {
        "WINDLASS_WORKER_THREDS": "3",
        "WINDLASS_SERVICE_HOST": "10.0.0.1",
        "WINDLASS_API_KEY": "a documented one",
        variable("app"): "shop:queue",
    }
    assert _load(tmp_path, environ=environ).worker().threads == 10
    assert unknown_variables(environ) == ["WINDLASS_SERVICE_HOST", "WINDLASS_WORKER_THREDS"]
