"""How do the jobs of one store come to another, each exactly once, whatever happens meanwhile?"""

from windlass.move.fleet import Running
from windlass.move.move import Moved, Step, abort, move

__all__ = ["Moved", "Running", "Step", "abort", "move"]
