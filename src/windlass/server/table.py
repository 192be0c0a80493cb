"""All routes; paths with a name in them are tried in this order."""

from __future__ import annotations

from windlass.server import (
    actions,
    docs,
    health,
    jobs,
    leases,
    observing,
    oncall,
    operate,
    produce,
    schedules,
    stream,
)
from windlass.server.routes import Route

ROUTES: tuple[Route, ...] = (
    *produce.ROUTES,
    *jobs.ROUTES,
    *actions.ROUTES,
    *leases.ROUTES,
    *operate.ROUTES,
    *oncall.ROUTES,
    *schedules.ROUTES,
    *observing.ROUTES,
    *stream.ROUTES,
    *health.ROUTES,
    *docs.ROUTES,
)
