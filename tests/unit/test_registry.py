from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windlass.context import Context
from windlass.errors import FatalError, InvalidPayload, InvalidValue
from windlass.outcome import Policy
from windlass.policy import Retry
from windlass.registry import Handler, Options, Registry, make_handler, shell_handler


def send(to: str, count: int = 1) -> None: ...


async def fetch(ctx: Context, url: str) -> None: ...


def made(**options: Any) -> Handler:
    return make_handler(send, options)


# --- handlers -----------------------------------------------------------------------------------


def test_a_type_is_named_after_its_function_unless_it_says_otherwise() -> None:
    assert made().name == "send"
    assert made(name="mail.send-2_b").name == "mail.send-2_b"


def test_def_runs_on_a_thread_and_async_def_on_the_loop() -> None:
    assert made().kind == "thread"
    assert make_handler(fetch).kind == "loop"
    assert make_handler(fetch).signature.context == "ctx"
    assert made().signature.context is None


def test_what_is_not_said_has_the_documented_defaults() -> None:
    handler = made()
    assert handler.timeout == timedelta(seconds=300)
    assert (handler.max_attempts, handler.priority, handler.version) == (5, 5, 1)
    assert (handler.policy, handler.when_unsure) == (Policy(), "run")
    assert handler.said == frozenset()


def test_what_is_said_is_kept_and_known_as_said() -> None:
    rules: dict[type[BaseException], Any] = {ValueError: "fatal", OSError: "retry"}
    retry = Retry(kind="fixed", base=1)
    handler = made(
        name="a", timeout="10m", max_attempts=1, priority=0, version=3, max_age="1h", when_unsure="stop"
    )
    assert handler.timeout == timedelta(minutes=10)
    assert (handler.max_attempts, handler.priority, handler.version) == (1, 0, 3)
    assert handler.policy == Policy(Retry(), {}, timedelta(hours=1))
    assert handler.when_unsure == "stop"
    assert handler.said == {"timeout", "max_attempts", "priority", "version", "max_age", "when_unsure"}
    assert made(retry=retry, rules=rules).policy == Policy(retry, rules)


def test_a_type_says_its_whole_policy_in_one_place() -> None:
    policy: dict[str, Any] = {
        "executor": "process",
        "memory": "512MB",
        "cpu_time": "1m",
        "timeout": "10m",
        "max_attempts": 3,
        "retry": Retry(kind="fixed", base=7),
        "rules": {ValueError: "fatal"},
        "max_age": "1h",
        "priority": 4,
        "max_priority": 6,
        "version": 2,
        "when_unsure": "stop",
        "concurrency": 5,
        "tenant_concurrency": 2,
        "rate": "100/m",
        "burst": 10,
        "limit_key": "crm",
        "sensitive": True,
        "result": False,
    }
    handler = made(**policy)
    assert handler.said == set(policy)
    # Only what is not a policy is missing: names, secrets and checks.
    apart = {"name", "encrypt", "verify", "sample", "verify_after", "smoke"}
    assert set(Options.__annotations__) == {*policy, *apart}
    known = handler.info()
    assert known.schema["type"] == "object"
    given = {name: value for name, value in known.options.items() if name in policy}
    retry = given.pop("retry")
    assert (retry["kind"], retry["base"]) == ("fixed", 7)
    assert given == {
        "memory": 512 * 2**20,
        "cpu_time": 60.0,
        "timeout": 600.0,
        "max_attempts": 3,
        "max_age": 3600.0,
        "priority": 4,
        "max_priority": 6,
        "when_unsure": "stop",
        "concurrency": 5,
        "tenant_concurrency": 2,
        "rate": "100/m",
        "burst": 10,
        "limit_key": "crm",
        "sensitive": True,
        "result": False,
    }


async def asynchronous(_: BaseException) -> None:
    """No rules: nobody would wait for its answer."""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": ""}, "type must be a letter a-z"),
        ({"name": "Send"}, "type must be a letter a-z"),
        ({"name": "1a"}, "type must be a letter a-z"),
        ({"name": "a b"}, "type must be a letter a-z"),
        ({"name": "a\n"}, "type must be a letter a-z"),
        ({"name": "a" * 129}, "at most 128 characters"),
        ({"timeout": 0}, "timeout must be between 1ms and 7d, got 0"),
        ({"timeout": "8d"}, "timeout must be between 1ms and 7d, got '8d'"),
        ({"timeout": "soon"}, "timeout must be a duration"),
        ({"max_attempts": 0}, "max_attempts must be a whole number between 1 and 20, got 0"),
        ({"max_attempts": 21}, "max_attempts must be a whole number between 1 and 20, got 21"),
        ({"max_attempts": 2.0}, "max_attempts must be a whole number"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"priority": -1}, "priority must be a whole number between 0 and 10, got -1"),
        ({"priority": 11}, "priority must be a whole number between 0 and 10, got 11"),
        ({"version": 0}, "version must be a whole number between 1"),
        ({"retry": 5}, "retry must be a Retry"),
        ({"rules": ValueError}, r"rules must be a mapping such as .* or a function of the exception"),
        ({"rules": 5}, r"rules must be a mapping such as .*, got 5"),
        ({"rules": ["fatal"]}, r"rules must be a mapping such as"),
        ({"rules": asynchronous}, r"rules must be a mapping such as .* or a function of the exception"),
        ({"result": "yes"}, r"result must be True .* or \"required\" .*, got 'yes'"),
        ({"max_age": 0}, "max_age must be more than 0 and at most 3650d, got 0"),
        ({"max_age": "3651d"}, "max_age must be more than 0 and at most 3650d, got '3651d'"),
        ({"rules": {5: "retry"}}, "a key of rules must be an exception class, got 5"),
        (
            {"rules": {ValueError: "die"}},
            r"rules\[ValueError\] must be one of retry, fatal, cancel, got 'die'",
        ),
        ({"max_age": "x"}, "max_age must be a duration"),
        ({"when_unsure": "think"}, "when_unsure must be one of run, stop, got 'think'"),
    ],
)
def test_a_wrong_option_is_refused_by_name_value_and_what_is_allowed(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        made(**options)


def test_a_name_of_128_characters_is_taken() -> None:
    assert made(name="a" * 128).name == "a" * 128


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize("function", [5, int, max, Handler, generator, async_generator])
def test_only_a_function_whose_body_runs_when_called_can_be_a_handler(function: Any) -> None:
    with pytest.raises(InvalidValue, match="handler must be a function"):
        make_handler(function)


def test_the_catalogue_is_told_schema_version_and_options() -> None:
    info = made(version=2, timeout=7, retry=Retry(kind="list", delays=(1, 2))).info()
    assert (info.name, info.schema_version) == ("send", 2)
    assert info.schema["required"] == ["to"]
    assert info.options["kind"] == "thread"
    assert info.options["timeout"] == 7.0
    assert info.options["retry"]["delays"] == (1, 2)
    assert info.options["said"] == ["retry", "timeout", "version"]


def test_a_handler_decodes_its_payload_or_refuses_it() -> None:
    assert made().signature.decode(b'{"to":"a"}') == {"to": "a"}
    with pytest.raises(InvalidPayload, match=r"^send: payload.to is missing"):
        made().signature.decode(b"{}")


def test_changing_the_rules_afterwards_changes_nothing() -> None:
    rules: dict[type[BaseException], Any] = {ValueError: "fatal"}
    handler = made(rules=rules)
    rules[ValueError] = "retry"
    assert handler.policy.rules == {ValueError: "fatal"}


# --- shell --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        {"command": "echo hi"},
        {"command": ["echo", "hi"], "timeout": 1.5, "cwd": "/", "env": {"A": "b"}},
        {"command": "x", "timeout": None, "cwd": None, "env": None},
    ],
)
def test_a_shell_job_takes_a_line_or_a_program_with_arguments(payload: dict[str, Any]) -> None:
    signature = shell_handler().signature
    assert signature.decode(signature.encode(payload)) == payload


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({}, "payload.command is missing"),
        ({"command": ""}, "payload.command must have at least 1"),
        ({"command": []}, "payload.command must have at least 1"),
        ({"command": ["a", 1]}, r"payload.command\[1\] must be a string"),
        ({"command": "a\0"}, "NUL"),
        ({"command": "a", "timeout": 0}, "payload.timeout must be above 0"),
        ({"command": "a", "env": {"A": 1}}, "payload.env.A must be a string"),
        ({"command": "a", "user": "root"}, "payload.user is unknown"),
    ],
)
def test_a_wrong_shell_job_is_refused(payload: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidPayload, match=complaint):
        shell_handler().signature.encode(payload)


def test_the_shell_type_has_no_function_to_call() -> None:
    with pytest.raises(TypeError, match="a worker runs its command"):
        shell_handler().function("echo hi")


# --- the registry -------------------------------------------------------------------------------


def test_handlers_are_found_by_name_and_pattern() -> None:
    registry = Registry()
    for name in ("mail.send", "mail.read", "report"):
        registry.add(made(name=name))
    assert registry.names() == ("mail.read", "mail.send", "report")
    assert registry.names(["mail.*"]) == ("mail.read", "mail.send")
    assert registry.names(["report", "nope"]) == ("report",)
    assert [handler.name for handler in registry.handlers()] == ["mail.send", "mail.read", "report"]
    assert registry.get("report") is not None
    assert registry.get("nope") is None


def test_a_name_belongs_to_one_function() -> None:
    registry = Registry()
    registry.add(made())
    with pytest.raises(InvalidValue, match=r"job type '.*' is already registered by .*test_registry.send"):
        registry.add(make_handler(fetch, Options(name="send")))
    assert registry.names() == ("send",)
    found = registry.get("send")
    assert found is not None
    assert found.function is send


def test_the_same_function_may_be_registered_again_with_other_options() -> None:
    registry = Registry()
    registry.add(made())
    registry.add(made(rules={FatalError: "fatal"}, timeout=1))
    found = registry.get("send")
    assert found is not None
    assert found.timeout == timedelta(seconds=1)
