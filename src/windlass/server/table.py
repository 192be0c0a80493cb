"""All routes, the hottest first: paths are tried in this order."""

from __future__ import annotations

from windlass.server import health, jobs
from windlass.server.routes import Route

ROUTES: tuple[Route, ...] = (*jobs.ROUTES, *health.ROUTES)
