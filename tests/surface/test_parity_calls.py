"""Does each command and each route really call its verb? All are typed and sent, and the verbs watched."""

from __future__ import annotations

import functools
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.server.conftest import serving, shop
from tests.surface.conftest import Terminal
from tests.surface.test_parity import WAYS
from windlass import Queue
from windlass.ops import Ops, Schedules, ScheduleWish
from windlass.ops.bulk import Operations
from windlass.ops.keys import KeyWish
from windlass.store.jobs import Filter

URL = "sqlite:///windlass.db"

# What is typed behind a verb's command; its own name is the key of a job that is there for it.
TYPED = {
    "show": "show",
    "ties": "show",
    "explain": "show",
    "failures": "--failures --for 10ms",
    "dead_groups": "--group",
    "batch": "BATCH",
    "breaker": "add",
    "limit": "add",
    "scrape": "--prometheus",
    "cancel": "cancel",
    "bury": "bury",
    "discard": "discard",
    "replay": "replay",
    "rerun": "rerun",
    "edit": "edit --payload '{\"a\": 2}'",
    "reschedule": "reschedule --now",
    "priority": "edit 3",
    "check_payload": "check_payload --file payload.json --yes",
    "bulk": "--type add --limit 1 --yes",
    "pause": "add",
    "resume": "mail.send",
    "set_breaker": "add open",
    "set_limit": "add --concurrency 2",
    "reset_limit": "add --reset",
    "drain": "WORKER",
    "set_setting": "keep_ended 9d",
    "set_settings": "keep_ended 9d",
    "reset_setting": "keep_ended --reset",
    "create_key": "me --role viewer",
    "revoke_key": "KEY",
    "backup": "copy.db",
    "operations.show": "OPERATION",
    "operations.count": "--type add --dry-run",
    "operations.start": "--type add --limit 1 --yes",
    "operations.follow": "OPERATION --follow",
    "operations.pause": "OPERATION",
    "operations.resume": "OPERATION",
    "operations.stop": "OPERATION",
    "schedules.show": "nightly",
    "schedules.add": "hourly add '{\"a\": 1}' --every 1h",
    "schedules.history": "nightly",
    "schedules.pause": "nightly",
    "schedules.resume": "nightly",
    "schedules.run": "nightly",
    "schedules.remove": "weekly",
}
# What is sent to a verb's route.
SENT: dict[str, dict[str, Any]] = {
    "edit": {"payload": {"a": 2}},
    "reschedule": {"delay": 0},
    "priority": {"priority": 3},
    "bulk": {"action": "replay", "filter": {"type": ["add"]}},
    "operations.count": {"action": "replay", "filter": {"type": ["add"]}, "dry_run": True},
    "operations.start": {"action": "replay", "filter": {"type": ["add"]}},
    "set_breaker": {"state": "open"},
    "set_limit": {"settings": {"concurrency": 2}},
    "reset_limit": {"settings": {"concurrency": None}},
    "set_setting": {"settings": {"keep_ended": "9d"}},
    "reset_setting": {"settings": {"keep_ended": None}},
    "set_settings": {"settings": {"keep_ended": "9d"}},
    "create_key": {"name": "me", "roles": ["viewer"]},
    "schedules.add": {"name": "hourly", "type": "add", "payload": {"a": 1}, "every": "1h"},
}
# Which job, type or schedule a route names, where it is not the verb's own.
NAMED = {
    "priority": "edit",
    "show": "show",
    "ties": "show",
    "explain": "show",
    "batch": "BATCH",
    "resume": "mail.send",
    "drain": "WORKER",
    "revoke_key": "KEY",
    "operations.show": "OPERATION",
    "operations.pause": "OPERATION",
    "operations.resume": "OPERATION",
    "operations.stop": "OPERATION",
    "schedules.remove": "weekly",
}
# A surface that reaches a verb by another one: what it calls, and why that is the same.
BY_COMMAND = {
    "bulk": "operations.start: and it is followed",
    "limit": "set_limit: with nothing to set, it only tells",
    "set_settings": "set_setting: one at a time",
    "retention": "settings: they have it",
}
BY_ROUTE = {
    "bulk": "operations.start: the server carries it",
    "show": "ties: the job itself is looked up by who may see it",
    "limit": "types: each with its limit",
    "breaker": "types: each with its breaker",
    "reschedule": "edit: with no delay",
    "priority": "edit: of the priority",
    "set_limit": "set_settings: a limit is a setting",
    "reset_limit": "set_settings: a limit is a setting",
    "set_setting": "set_settings: all or none",
    "reset_setting": "set_settings: all or none",
    "db_status": "database: and more",
    "retention": "settings: they have it",
}


class Watch:
    """The verbs that were called, by nobody but the surface: not those that a verb calls for itself."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self._within = threading.local()

    def over(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        """The verb, watched."""

        @functools.wraps(verb)
        def watched(*args: Any, **options: Any) -> Any:
            if getattr(self._within, "verb", False):
                return verb(*args, **options)
            self.called.add(name)
            self._within.verb = True
            try:
                return verb(*args, **options)
            finally:
                self._within.verb = False

        return watched


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Every verb, watched."""
    watch = Watch()
    for owner, prefix in ((Ops, ""), (Schedules, "schedules."), (Operations, "operations.")):
        for name in [each for each in dir(owner) if f"{prefix}{each}" in WAYS]:
            monkeypatch.setattr(owner, name, watch.over(prefix + name, getattr(owner, name)))
    return watch


@contextmanager
def seeded(queue: Queue) -> Iterator[dict[str, str]]:
    """A store in which there is something for each verb; answers what is not known before."""
    queue.publish()
    ops = Ops(queue.store)
    names = ("show", "cancel", "bury", "edit", "discard", "replay", "check_payload", "bulk", "start", "rerun")
    known = {name: queue.enqueue("add", {"a": 1}, key=name).id for name in names}
    known["reschedule"] = queue.enqueue("add", {"a": 1}, key="reschedule", delay=3600).id
    for key in ("discard", "replay", "check_payload", "bulk", "start"):
        ops.bury(key)
    ops.cancel("rerun")
    with queue.batch("some") as batch:
        batch.add(queue.draft("add", {"a": 1}))
    ops.pause("mail.send")
    for name in ("nightly", "weekly"):
        wish = ScheduleWish(name=name, type="add", payload={"a": 1}, timing={"cron": "0 3 * * *"})
        ops.schedules.add(wish)
    # Slow, so that it does not end by itself.
    operation = ops.operations.start(
        "reschedule", Filter(key="reschedule"), rate=0.01, delay=timedelta(hours=9)
    )
    ops.operations.pause(operation.id)
    other, _ = ops.create_key(KeyWish(name="other", roles=("viewer",)))
    with queue.worker(types=("mail.send",), shell=False):
        [worker] = [each.info.id for each in ops.workers() if each.alive]
        yield known | {"WORKER": worker, "KEY": other.id, "BATCH": batch.id, "OPERATION": operation.id}


def test_every_command_calls_its_verb(windlass: Terminal, watch: Watch) -> None:
    windlass.write("payload.json", '{"a": 2}')
    missed = []
    with shop(URL) as queue, seeded(queue) as known:
        for verb, way in WAYS.items():
            if way.command is None or verb == "stop_local":
                continue
            words = shlex.split(TYPED.get(verb, ""))
            watch.called.clear()
            answer = windlass(*way.command.split(), *(known.get(word, word) for word in words))
            assert answer.code in (0, 1), (verb, answer)
            if _called(verb, BY_COMMAND) not in watch.called:
                missed.append((verb, way.command, sorted(watch.called), answer.err))
    assert missed == []


@pytest.mark.usefixtures("windlass")
def test_every_route_calls_its_verb(watch: Watch) -> None:
    missed = []
    with shop(URL) as queue, seeded(queue) as known, serving(queue, upkeep=False) as house:
        admin = house.caller(house.key("root", "admin"))
        for verb, way in WAYS.items():
            if way.route is None:
                continue
            method, path = way.route.split(" ")
            name = known.get(NAMED.get(verb, verb), NAMED.get(verb, verb))
            given = {"id": name, "type": NAMED.get(verb, "add"), "name": NAMED.get(verb, "nightly")}
            watch.called.clear()
            url = house.url + path.format(**given)
            answer = admin.request(method, url, json=SENT.get(verb) if method != "GET" else None)
            assert answer.status_code < 300, (verb, answer.text)
            if _called(verb, BY_ROUTE) not in watch.called:
                missed.append((verb, way.route, sorted(watch.called)))
    assert missed == []


def _called(verb: str, otherwise: dict[str, str]) -> str:
    return otherwise.get(verb, verb).partition(":")[0]
