"""How is a project's worker started? `manage.py windlass_worker`, as `windlass worker start`."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from django.core.management.base import BaseCommand

from windlass.cli.main import run

_QUEUE = "windlass.contrib.django:queue"


class Command(BaseCommand):
    """Run the project's jobs until stopped."""

    help = "Run the project's jobs until stopped; takes the options of `windlass worker start`."
    requires_system_checks: ClassVar[list[str]] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Hand the options on as they are; Django has set everything up by now."""
        sys.exit(run(["worker", "start", _QUEUE, *argv[2:]]))

    def handle(self, *_: str, **__: Any) -> None:
        """For `call_command`, which knows none of the options."""
        sys.exit(run(["worker", "start", _QUEUE]))
