"""What was tried, and what came of it? Writes docs/evidence.md from committed results; `make evidence`."""
