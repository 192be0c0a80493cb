"""Ordinary bad days in production, played with real processes. Run by `make bad-day`."""
