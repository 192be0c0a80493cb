"""What can be seen from outside over HTTP: metrics, history, alerts, and how many workers it takes."""

from __future__ import annotations

from http import HTTPStatus

from windlass.observe import names
from windlass.observe.exposition import MEDIA_TYPE
from windlass.observe.ledger import Ledger
from windlass.server.call import Call
from windlass.server.group_commit import Stored
from windlass.server.limits import DENIED
from windlass.server.reply import Reply
from windlass.server.routes import route

# Requests that put jobs in: what comes of them is counted.
ENQUEUES = frozenset({"/api/v1/jobs", "/api/v1/jobs/batch"})
# By plain numbers: to look for a member of an enumeration takes ten times as long.
_RESULTS = {
    HTTPStatus.CREATED.value: names.ACCEPTED,
    HTTPStatus.OK.value: names.EXISTING,
    HTTPStatus.TOO_MANY_REQUESTS.value: names.REFUSED,
}
# An answer that says that all is not well has not failed.
PROBES = "/health"


def note_enqueue(ledger: Ledger, status: int, seconds: float, service: str = "") -> None:
    """Count what came of a request to enqueue, of which service it was, and how long it took."""
    result = _RESULTS.get(status)
    if result is None:
        result = names.BROKEN if status >= HTTPStatus.INTERNAL_SERVER_ERROR else names.INVALID
    if service:
        ledger.count(names.of_service(service, result))
    ledger.count(result)
    ledger.measure(names.ENQUEUE, seconds)


def note_jobs(call: Call, stored: Stored) -> None:
    """Count the jobs that came in from a service, if they came with its key."""
    service = call.parts.keyring.label(call.identity)
    if service:
        created = sum(each.created for each in stored.done)
        call.parts.flow.ledger.count(names.of_service(service, names.ENQUEUED), created)


def is_refusal(status: int) -> bool:
    """Whether somebody was turned away: they may not, there was too much, or something is broken."""
    return (
        status in DENIED
        or status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


def note_refusal(ledger: Ledger, status: int, route: str) -> None:
    """Count it, by the route's path in the table: names within paths are no labels."""
    if not route.startswith(PROBES):
        ledger.count(names.answered(status, route))


@route("GET /metrics", "Metrics for Prometheus", {200: None}, media_type=MEDIA_TYPE)
async def metrics(call: Call) -> Reply:
    """Everything that is measured, as Prometheus reads it."""
    text = await call.run(call.parts.ops(call.identity).scrape)
    return Reply(200, text.encode(), media_type=MEDIA_TYPE.encode())
