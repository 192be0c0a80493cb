"""What does a handler take, and does a payload fit it?"""

from windlass.payload.fit import quick
from windlass.payload.seal import Ring, read_key
from windlass.payload.signature import Signature
from windlass.payload.text import encode, pack, parse
from windlass.payload.upgrades import Upgrades
from windlass.payload.validate import problem_of, validate, validate_for

__all__ = [
    "Ring",
    "Signature",
    "Upgrades",
    "encode",
    "pack",
    "parse",
    "problem_of",
    "quick",
    "read_key",
    "validate",
    "validate_for",
]
