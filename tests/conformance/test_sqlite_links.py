"""Links and other things with the names of a store's lock files and log are refused and not followed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.scene import put_one
from windlass import connect
from windlass.errors import StoreUnavailable
from windlass.store.sqlite import beside
from windlass.store.store import Store

LOCKS = ["-turn", "-door"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "precious"
    target.write_text("to whom it may concern")
    target.chmod(0o644)
    return target


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Store]:
    with contextlib.closing(connect.open(f"sqlite:///{path}")) as one:
        yield one.store


def assert_untouched(target: Path) -> None:
    assert target.read_text() == "to whom it may concern"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("suffix", LOCKS)
def test_a_link_in_the_place_of_a_lock_file_is_refused(
    path: Path, target: Path, suffix: str, *, there: bool
) -> None:
    if there:
        with opened(path) as store:
            put_one(store)
        path.with_name(path.name + suffix).unlink()
    path.with_name(path.name + suffix).symlink_to(target)
    refused = pytest.raises(StoreUnavailable, match=f"jobs.db{suffix} is a symbolic link, .* remove it")
    with refused, opened(path) as store:
        put_one(store)
    assert_untouched(target)


@pytest.mark.parametrize("suffix", LOCKS)
def test_a_link_that_leads_nowhere_makes_no_file_there(path: Path, suffix: str) -> None:
    path.with_name(path.name + suffix).symlink_to("elsewhere")
    with pytest.raises(StoreUnavailable, match="is a symbolic link"), opened(path):
        pass
    assert not path.with_name("elsewhere").exists()


@pytest.mark.parametrize("suffix", LOCKS)
def test_a_pipe_in_the_place_of_a_lock_file_is_refused(path: Path, suffix: str) -> None:
    os.mkfifo(path.with_name(path.name + suffix))
    with pytest.raises(StoreUnavailable, match=f"jobs.db{suffix} is not a regular file"), opened(path):
        pass


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_link_in_the_place_of_the_log_is_refused(path: Path, target: Path, suffix: str) -> None:
    with opened(path) as store:
        put_one(store)
    path.chmod(0o600)
    path.with_name(path.name + suffix).symlink_to(target)
    refused = pytest.raises(StoreUnavailable, match=f"jobs.db{suffix} is a symbolic link, .* remove it")
    with refused, opened(path) as store:
        put_one(store)
    assert_untouched(target)


@pytest.mark.parametrize(
    ("mode", "owner", "refused"),
    [
        (0o600, 0, False),
        (0o600, 1, False),
        (0o600, 2, False),
        (0o600, 3, True),
        (0o644, 3, True),
        (0o660, 3, False),
    ],
)
def test_the_owner_of_a_lock_file_matters_unless_a_store_is_shared(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, *, refused: bool
) -> None:
    """The store belongs to user 1, and this process to user 2."""
    path.touch()
    stats = {"mode": stat.S_IFREG | mode}
    real = os.stat

    def looked(name: str, *args: object, **options: object) -> os.stat_result:
        if name == str(path):
            return os.stat_result((stats["mode"], 0, 0, 1, 1, 0, 0, 0, 0, 0))
        return real(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", looked)
    monkeypatch.setattr(os, "geteuid", lambda: 2)
    monkeypatch.setattr(
        os, "fstat", lambda _: os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    )
    if refused:
        with pytest.raises(StoreUnavailable, match=r"jobs\.db-turn is owned by another user"):
            beside.open_lock(str(path), "-turn")
    else:
        os.close(beside.open_lock(str(path), "-turn"))
