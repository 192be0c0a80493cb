"""The parts of a store's URL, what is wrong with it, and that nobody sees its password."""

from __future__ import annotations

import re

import pytest

from windlass.errors import InvalidValue
from windlass.store.postgres.address import read
from windlass.url import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("jobs.db", "jobs.db"),
        ("postgresql://ann@db:5432/jobs", "postgresql://ann@db:5432/jobs"),
        ("postgresql://db:5432/jobs?user=ann@here", "postgresql://db:5432/jobs?user=ann%40here"),
        ("postgresql://ann:s3cret@db:5432/jobs?a=1", "postgresql://ann:***@db:5432/jobs?a=1"),
        ("postgresql://ann:p@ss@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:p#ss@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:p?ss@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:p/ss@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:12/p/ss@db/jobs", "postgresql://ann:***@db/jobs"),
        ("postgresql://ann:s3cret@[::1/jobs", "postgresql://ann:***@[::1/jobs"),
        ("postgresql://ann@db/jobs?password=s3cret", "postgresql://ann@db/jobs?password=***"),
        ("https://key@host", "https://host"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("db:notaport/x", "port of the database URL must be a number from 1 to 65535, got 'notaport'"),
        ("db:65536/x", "port of the database URL must be a number from 1 to 65535, got '65536'"),
        ("db,db:5432,db:0/x", "port of the database URL must be .*, got '0'"),
        ("me:hush/hush@db/x", r"port of the database URL must be .*a / in a password %2F, got '\*\*\*'"),
        ("me:hush%zz@db/x", r"database URL must be .*a % itself is written %25, got '\S+me:\*\*\*@db/x'"),
        ("me:hush%00@db/x", "database URL must be .*%25, got"),
        ("me@db/x?application_name=100%", "database URL must be .*%25, got"),
        ("me:hush@[::1/x", r"database URL must be postgresql://user@host/name, .*, got '\S+\*\*\*@\[::1/x'"),
        (
            "me:hush@db/x?bogus=1",
            "parameter of the database URL must be one of PostgreSQL's, .*, got 'bogus'",
        ),
        ("me@db/x?windlass_pool=on", "parameter .* windlass_pooler or windlass_notify, got 'windlass_pool'"),
        ("me@db/x?connect_timeout=soon", "connect_timeout of .* must be a whole number, got 'soon'"),
        ("me@db/x?sslmode=on", "sslmode of .* must be one of disable, .*verify-full, got 'on'"),
    ],
)
def test_a_wrong_url_is_refused_by_what_is_wrong_with_it(url: str, told: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read(f"postgresql://{url}")
    assert re.fullmatch(f"{told}.*", str(refused.value))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///x",
        "postgresql://db,other:5433/x?target_session_attrs=any",
        "postgresql:///x?host=/run/postgresql&port=5433",
        "postgresql://me:%2F%25@[::1]:5432/x?ssl=true&sslmode=require&connect_timeout=2",
        "postgres://me:p@s?s#@db/x",
    ],
)
def test_what_postgresql_understands_is_left_to_it(url: str) -> None:
    assert read(url).conninfo()


def test_the_driver_is_given_each_part_as_it_was_meant() -> None:
    given = read("postgresql://me:p@s?s#@db/x?application_name=a+b%20c").conninfo()
    assert "password='p@s?s#'" in given or "password=p@s?s#" in given
    assert "host=db" in given
    assert "application_name='a+b c'" in given
