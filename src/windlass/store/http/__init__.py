"""The store behind a server: what producers need of it, over HTTP."""
