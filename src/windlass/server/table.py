"""All routes, the hottest first: paths are tried in this order."""

from __future__ import annotations

from windlass.server import apikeys, docs, health, jobs, leases, operate, stream
from windlass.server.routes import Route


def _each_path_before_its_patterns(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """A path without a name in it stands before one whose name would match it."""
    return tuple(sorted(routes, key=lambda route: "{" in route.path))


ROUTES: tuple[Route, ...] = _each_path_before_its_patterns(
    (
        *jobs.ROUTES,
        *leases.ROUTES,
        *operate.ROUTES,
        *stream.ROUTES,
        *apikeys.ROUTES,
        *health.ROUTES,
        *docs.ROUTES,
    )
)
