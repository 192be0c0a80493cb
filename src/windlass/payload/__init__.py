"""What does a handler take, and does a payload fit it?"""

from windlass.payload.signature import Signature
from windlass.payload.text import pack, parse
from windlass.payload.validate import validate

__all__ = ["Signature", "pack", "parse", "validate"]
