"""Payloads: JSON, schemas, validation, encryption and upgrades."""

from windlass.payload.codec import Signature, encode, pack, parse
from windlass.payload.seal import Ring, read_key
from windlass.payload.upgrades import Upgrades
from windlass.payload.validate import problem_of, quick, validate, validate_for

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
