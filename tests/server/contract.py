"""How is the contract tried out? By requests that are made from it."""

from __future__ import annotations

import sys
from pathlib import Path

# positive_data_acceptance: a type that fits the contract need not be registered. ignored_auth: the contract
# tells of servers with and without keys; who may what is tested by the matrix of roles.
_LEFT_OUT = ("positive_data_acceptance", "ignored_auth")


def words(url: str, key: str, examples: int) -> list[str]:
    """The command that tries a server's contract out, with so many examples for each operation."""
    program = str(Path(sys.executable).parent / "st")
    line = [program, "run", f"{url}/openapi.json", "-H", f"Authorization: Bearer {key}", "--no-color"]
    line += ["--max-examples", str(examples), "--checks", "all", "--exclude-checks", ",".join(_LEFT_OUT)]
    # A stream has no end that could be waited for.
    line += ["--continue-on-failure", "--exclude-path", "/api/v1/stream"]
    # It cannot write many documents, one a line.
    line += ["--exclude-path", "/api/v1/jobs/bulk"]
    return [*line, "--suppress-health-check", "all", "--generation-database", "none"]
