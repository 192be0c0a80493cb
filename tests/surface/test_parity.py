"""Has every verb of an operator its command, its route, its place in the dashboard, its line in the docs?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from windlass.cli.main import cli
from windlass.ops import Ops, Schedules
from windlass.ops.bulk import Operations
from windlass.server.table import ROUTES

ROOT = Path(__file__).parents[2]
PAGES = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
DASHBOARD = ROOT / "src/windlass/dashboard"
METHODS = {
    "get": "GET",
    "maybe": "GET",
    "post": "POST",
    "postAsync": "POST",
    "sendText": "POST",
    "put": "PUT",
    "change": "PATCH",
    "remove": "DELETE",
}
# api.get("/stats"), or api.post(api.at("jobs", job.id, "cancel")): a path is written out, or put together.
CALL = re.compile(r'api\.(\w+)\((?:"/([^"]*)"|api\.at\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\))')


class Asked(NamedTuple):
    """A request that the dashboard makes: None stands for what is known only when it is made."""

    method: str
    parts: tuple[str | None, ...]
    written: str
    module: str

    def asks(self, method: str, path: str) -> bool:
        """Whether it may be of this method and path."""
        wanted = path.split("/")
        if (method, len(wanted)) != (self.method, len(self.parts)):
            return False
        return all(self._may_be(part, want) for part, want in zip(self.parts, wanted, strict=True))

    def _may_be(self, part: str | None, want: str) -> bool:
        if want.startswith("{"):
            return part is None
        # A verb that is chosen by what was pressed stands somewhere in the module: as a text, or as a name.
        named = rf"""["'`]{want}\b|\b{want}: \{{"""
        return part == want or (part is None and bool(re.search(named, self.module, re.IGNORECASE)))


def _calls() -> Iterator[Asked]:
    for path in sorted(DASHBOARD.rglob("*.js")):
        module = path.read_text(encoding="utf-8")
        for found in CALL.finditer(module):
            how, plain, together = found.groups()
            parts = plain.split("/") if plain is not None else re.split(r",\s*(?![^(]*\))", together)
            literal = [
                part if plain is not None else (re.fullmatch(r'"(\w+)"', part) or [None] * 2)[1]
                for part in parts
            ]
            yield Asked(METHODS[how], tuple(literal), f"{path.name}: {found[0]}", module)


CALLS = list(_calls())


class Way(NamedTuple):
    """How a verb is reached. None: it is not for that surface, and `why` says so."""

    command: str | None
    route: str | None
    why: str = ""
    # Whether a browser offers it.
    shown: bool = True


HELPER = "a part of other verbs, or of the library"
WAYS: dict[str, Way] = {
    # looking
    "status": Way("status", "GET /api/v1/stats"),
    "find": Way("list", "GET /api/v1/jobs"),
    "show": Way("show", "GET /api/v1/jobs/{id}"),
    "explain": Way("explain", "GET /api/v1/jobs/{id}/explain"),
    "explain_own": Way(None, None, "what the route of explain answers to a producer"),
    "failures": Way("tail", "GET /api/v1/failures"),
    "dead_groups": Way("dlq list", "GET /api/v1/dlq/groups"),
    "batch": Way("batch", "GET /api/v1/batches/{id}", "a job's page names its batch", shown=False),
    "types": Way("types", "GET /api/v1/types"),
    "workers": Way("worker health", "GET /api/v1/workers"),
    "breaker": Way("breaker", "GET /api/v1/types"),
    "limit": Way("limit", "GET /api/v1/types"),
    "ties": Way("show", "GET /api/v1/jobs/{id}"),
    "database": Way("doctor", "GET /api/v1/database"),
    # what has happened, and what it means
    "signals": Way("signals", "GET /api/v1/signals", "its findings stand in stats", shown=False),
    "metrics": Way("metrics", "GET /api/v1/metrics", "the dashboard draws the history", shown=False),
    "scrape": Way("metrics", "GET /metrics", "Prometheus reads it", shown=False),
    "history": Way(None, "GET /api/v1/stats/history", "charts are drawn from it; metrics shows totals"),
    "alerts": Way("alerts", "GET /api/v1/alerts", "they call people, wherever those are", shown=False),
    "autoscale": Way("autoscale", "GET /api/v1/autoscale", "an autoscaler asks", shown=False),
    # one job, and many
    "cancel": Way("cancel", "POST /api/v1/jobs/{id}/cancel"),
    "bury": Way("bury", "POST /api/v1/jobs/{id}/bury"),
    "discard": Way("discard", "POST /api/v1/jobs/{id}/discard"),
    "replay": Way("replay", "POST /api/v1/jobs/{id}/replay"),
    "rerun": Way("rerun", "POST /api/v1/jobs/{id}/rerun"),
    "edit": Way("edit", "PATCH /api/v1/jobs/{id}"),
    "priority": Way("priority", "PATCH /api/v1/jobs/{id}"),
    "reschedule": Way("reschedule", "PATCH /api/v1/jobs/{id}"),
    "check_payload": Way("dlq edit", None, "a replay checks it"),
    "bulk": Way("replay", "POST /api/v1/jobs/actions"),
    # types, workers, settings
    "pause": Way("pause", "POST /api/v1/types/{type}/pause"),
    "resume": Way("resume", "POST /api/v1/types/{type}/resume"),
    "set_breaker": Way("breaker", "POST /api/v1/types/{type}/breaker"),
    "set_limit": Way("limit", "PUT /api/v1/types/{type}"),
    "reset_limit": Way("limit", "PUT /api/v1/types/{type}"),
    "drain": Way("worker drain", "POST /api/v1/workers/{id}/drain"),
    "stop_local": Way("worker stop", None, "it is about the processes of this machine"),
    "settings": Way("config get", "GET /api/v1/settings"),
    "setting_problems": Way("config validate", None, "doctor and config tell of them"),
    "set_setting": Way("config set", "PUT /api/v1/settings"),
    "reset_setting": Way("config set", "PUT /api/v1/settings"),
    "set_settings": Way("config set", "PUT /api/v1/settings"),
    # who
    "create_key": Way("keys create", "POST /api/v1/keys"),
    "keys": Way("keys list", "GET /api/v1/keys"),
    "revoke_key": Way("keys revoke", "DELETE /api/v1/keys/{id}"),
    "audit": Way("audit", "GET /api/v1/audit"),
    # the store, which only who stands beside it looks after
    "db_status": Way("db status", "GET /api/v1/database"),
    "prune": Way("db prune", None, "workers do it; by hand on the store alone"),
    "backup": Way("db backup", None, "it writes a file"),
    "check": Way("db check", None, "it reads everything"),
    "retention": Way("config get", "GET /api/v1/settings"),
    "now": Way(None, None, HELPER),
    # operations
    "operations.list": Way("operation list", "GET /api/v1/operations"),
    "operations.show": Way("operation show", "GET /api/v1/operations/{id}"),
    "operations.count": Way("replay", "POST /api/v1/jobs/actions"),
    "operations.start": Way("replay", "POST /api/v1/jobs/actions"),
    "operations.pause": Way("operation pause", "POST /api/v1/operations/{id}/pause"),
    "operations.resume": Way("operation resume", "POST /api/v1/operations/{id}/resume"),
    "operations.stop": Way("operation stop", "POST /api/v1/operations/{id}/stop"),
    "operations.follow": Way("operation show", None, "the dashboard asks again and again"),
    # schedules
    "schedules.list": Way("schedule list", "GET /api/v1/schedules"),
    "schedules.show": Way("schedule show", "GET /api/v1/schedules/{name}"),
    "schedules.add": Way("schedule add", "POST /api/v1/schedules", "mostly in code", shown=False),
    "schedules.history": Way("schedule show", "GET /api/v1/schedules/{name}"),
    "schedules.pause": Way("schedule pause", "POST /api/v1/schedules/{name}/pause"),
    "schedules.resume": Way("schedule resume", "POST /api/v1/schedules/{name}/resume"),
    "schedules.run": Way("schedule run", "POST /api/v1/schedules/{name}/run"),
    "schedules.remove": Way("schedule remove", "DELETE /api/v1/schedules/{name}", "rare", shown=False),
}


def verbs() -> set[str]:
    own = {name for name in dir(Ops) if not name.startswith("_") and callable(getattr(Ops, name))}
    return own | {
        f"{prefix}.{name}"
        for prefix, owner in (("schedules", Schedules), ("operations", Operations))
        for name in dir(owner)
        if not name.startswith("_") and callable(getattr(owner, name))
    }


def command_named(words: str) -> click.Command | None:
    found: click.Command | None = cli
    for word in words.split():
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found


ROUTED = {f"{route.method} {route.path}" for route in ROUTES}


def test_every_verb_is_known_here() -> None:
    assert verbs() == set(WAYS)


@pytest.mark.parametrize("verb", sorted(WAYS))
def test_a_verb_has_its_command_its_route_and_its_line(verb: str) -> None:
    way = WAYS[verb]
    if way.command is None or way.route is None or not way.shown:
        assert way.why, f"{verb} lacks a surface, and nobody says why"
    if way.command is not None:
        assert command_named(way.command) is not None, f"{verb} has no command {way.command!r}"
        assert f"windlass {way.command}" in PAGES, f"no page tells of windlass {way.command}"
    if way.route is not None:
        assert way.route in ROUTED, f"{verb} has no route {way.route}"
        path = _below(way.route)
        told = re.sub(r"\\\{\w+\\\}", r"[^\\s/`]+", re.escape(path))
        assert re.search(rf"/{told}(?![\w/])", PAGES), f"docs/http.md does not tell of {way.route}"


@pytest.mark.parametrize("verb", sorted(name for name, way in WAYS.items() if way.route and way.shown))
def test_a_verb_has_its_place_in_the_dashboard(verb: str) -> None:
    method, path = (WAYS[verb].route or "").split(" ")[0], _below(WAYS[verb].route or "")
    assert any(call.asks(method, path) for call in CALLS), f"the dashboard never asks for {method} {path}"


def test_the_dashboard_asks_for_nothing_that_no_route_answers() -> None:
    routes = [(route.method, _below(f"{route.method} {route.path}")) for route in ROUTES]
    for call in CALLS:
        assert any(call.asks(method, path) for method, path in routes), call.written


def _below(route: str) -> str:
    """A route's path as it is written behind the API's own."""
    return re.sub(r"^\w+ (/api/v1)?/", "", route)
