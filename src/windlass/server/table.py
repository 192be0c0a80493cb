"""All routes; paths with a name in them are tried in this order."""

from __future__ import annotations

from windlass.server import apikeys, docs, health, jobs, leases, operate, schedules, stream
from windlass.server.routes import Route

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *leases.ROUTES,
    *operate.ROUTES,
    *schedules.ROUTES,
    *stream.ROUTES,
    *apikeys.ROUTES,
    *health.ROUTES,
    *docs.ROUTES,
)
