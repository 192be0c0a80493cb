"""What do an operator's run-time settings come to?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from windlass.errors import InvalidValue
from windlass.policy import BreakerTerms, Retry
from windlass.settings import Effective, Settings, check_changes, parse, read, split


def effective(settings: Settings, job_type: str, **code: Any) -> Effective:
    """What holds for a type whose code says this much."""
    options = {"said": [*code], **msgspec.to_builtins(code, builtin_types=(timedelta,))}
    if "timeout" in code:
        options["timeout"] = code["timeout"].total_seconds()
    return settings.of_type(job_type, options).run


def test_with_nothing_set_the_defaults_hold() -> None:
    settings = read({})
    held = effective(settings, "mail")
    assert (held.max_attempts, held.timeout, held.retry) == (5, timedelta(minutes=5), Retry())
    assert (settings.keep_ended, settings.keep_dead) == (timedelta(days=7), timedelta(days=30))
    assert (settings.soft_depth("mail"), settings.hard_depth("mail")) == (100_000, 500_000)
    minutes = timedelta(minutes=1)
    assert settings.breaker("mail") == BreakerTerms(share=0.8, jobs=10, window=5 * minutes, probe=minutes)


def test_a_general_setting_holds_for_types_whose_code_says_nothing() -> None:
    settings = read({"max_attempts": "9", "timeout": "10m", "retry.base": "1s"})
    silent = effective(settings, "mail")
    assert (silent.max_attempts, silent.timeout, silent.retry) == (9, timedelta(minutes=10), Retry(base=1))
    outspoken = effective(settings, "mail", max_attempts=2, timeout=timedelta(seconds=3), retry=Retry(base=7))
    assert (outspoken.max_attempts, outspoken.timeout, outspoken.retry) == (
        2,
        timedelta(seconds=3),
        Retry(base=7),
    )


def test_a_setting_for_one_type_stands_above_its_code() -> None:
    settings = read({"mail.max_attempts": "3", "mail.timeout": "1m", "max_attempts": "9"})
    code = {"max_attempts": 2, "timeout": timedelta(seconds=3)}
    assert effective(settings, "mail", max_attempts=2, timeout=timedelta(seconds=3)).max_attempts == 3
    assert effective(settings, "mail", timeout=timedelta(seconds=3)).timeout == timedelta(minutes=1)
    assert (
        effective(settings, "report", max_attempts=2, timeout=timedelta(seconds=3)).max_attempts
        == code["max_attempts"]
    )


def test_parts_of_a_retry_policy_are_set_one_by_one_over_the_codes_own() -> None:
    settings = read({"mail.retry.cap": "1h", "retry.base": "2s"})
    assert effective(settings, "mail", retry=Retry(kind="linear", base=5)).retry == Retry(
        kind="linear", base=5, cap=3600
    )
    assert effective(settings, "mail").retry == Retry(base=2, cap=3600)


def test_a_type_with_dots_in_its_name_can_be_set() -> None:
    assert split("report.build.timeout") == ("report.build", "timeout")
    assert split("report.build.retry.base") == ("report.build", "retry.base")
    assert split("retry.base") == (None, "retry.base")
    assert split("retry.timeout") == ("retry", "timeout")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_attempts", " 20 ", 20),
        ("timeout", "90", timedelta(seconds=90)),
        ("mail.retry.kind", "linear", "linear"),
        ("retry.jitter", "0", 0.0),
        ("retry.delays", "5s, 1m,1h", (5.0, 60.0, 3600.0)),
        ("keep_dead", "0", timedelta(0)),
    ],
)
def test_values_are_read(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("max_attempts", "0", "between 1 and 20"),
        ("max_attempts", "21", "between 1 and 20"),
        ("max_attempts", "five", "between 1 and 20"),
        ("mail.timeout", "0", "up to 7d"),
        ("timeout", "8d", "up to 7d"),
        ("timeout", "soon", "a duration"),
        ("retry.kind", "sometimes", "exponential, power, linear, fixed, list, never"),
        ("retry.base", "31d", "up to 30d"),
        ("retry.delays", "5s,,1m", "a duration"),
        ("keep_ended", "forever", "a duration"),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_what_is_allowed(
    name: str, text: str, words: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse(name, text)
    assert str(refused.value).startswith(f"{name} must be ")
    assert words in str(refused.value)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    "name", ["max_tries", "mail.keep_dead", ".timeout", "mail.retry", "x" * 129 + ".timeout"]
)
def test_an_unknown_setting_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidValue, match="setting must be one of max_attempts, timeout, "):
        split(name)


def test_one_bad_stored_setting_does_not_spoil_the_others() -> None:
    settings = read({"timeout": "soon", "max_attempts": "7", "limit.x": "from a newer version"})
    assert effective(settings, "mail").max_attempts == 7
    assert effective(settings, "mail").timeout == timedelta(minutes=5)
    assert len(settings.problems) == 2


def test_the_list_kind_needs_its_delays_first() -> None:
    with pytest.raises(InvalidValue, match=r"mail\.retry\.kind must be set after mail\.retry\.delays"):
        check_changes({}, {"mail.retry.kind": "list"})
    check_changes({"mail.retry.delays": "1s"}, {"mail.retry.kind": "list"})
    # Both at once, in any order.
    check_changes({}, {"mail.retry.kind": "list", "mail.retry.delays": "1s"})
    with pytest.raises(
        InvalidValue, match=r"mail\.retry\.delays must be kept while mail\.retry\.kind is list"
    ):
        check_changes({"mail.retry.delays": "1s", "mail.retry.kind": "list"}, {"mail.retry.delays": None})
    held = read({"mail.retry.kind": "list"})
    assert effective(held, "mail").retry == Retry()
    assert held.problems == ("mail.retry.kind is list, but mail.retry.delays is not set",)


def test_what_cannot_be_read_can_still_be_reset() -> None:
    check_changes({"limit.x": "from a newer version"}, {"limit.x": None})
    with pytest.raises(InvalidValue, match="setting must be one of"):
        check_changes({}, {"limit.x": None})


@pytest.mark.parametrize(
    "name",
    ["*.timeout", "*.breaker.share", "*.tenant_concurrency", "key:crm.max_attempts", "key:crm.hard_depth"],
)
def test_what_would_hold_for_nobody_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="setting must be one of"):
        split(name)


def test_keys_and_all_jobs_together_have_settings_of_their_own() -> None:
    assert split("*.hard_depth") == ("*", "hard_depth")
    assert split("*.rate") == ("*", "rate")
    assert split("key:crm.concurrency") == ("key:crm", "concurrency")
    assert split("key:crm.breaker.share") == ("key:crm", "breaker.share")
