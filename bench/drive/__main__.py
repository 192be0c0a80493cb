"""A peer's driver as a process: `python -m bench.drive pgqueuer` in that peer's own environment."""

import importlib
import sys

from bench.drive.wire import serve

serve(importlib.import_module(f"bench.peers.{sys.argv[1]}").driver())
