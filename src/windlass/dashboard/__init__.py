"""The dashboard: what a browser is served, in JavaScript; `windlass.server.dashboard` serves it."""
