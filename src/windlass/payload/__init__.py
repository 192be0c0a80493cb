"""What does a handler take, and does a payload fit it?"""

from windlass.payload.fit import quick
from windlass.payload.seal import Ring
from windlass.payload.signature import Signature
from windlass.payload.text import encode, pack, parse
from windlass.payload.upgrades import Upgrades
from windlass.payload.validate import validate

__all__ = ["Ring", "Signature", "Upgrades", "encode", "pack", "parse", "quick", "validate"]
