"""What may an operator set at run time, and what does it come to for one type?

A plain name (`timeout`) is the default for types whose code says nothing; a name with a type in front
(`report.build.timeout`) is an operator's override and stands above the code, until it is reset. Limits are
also set for what shares a key (`key:crm.concurrency`) and for all jobs together (`*.rate`).
"""

from windlass.settings.names import ALL, DEFAULTS, KEY, PER_TYPE, SECRET, TENANTS, split
from windlass.settings.settings import Effective, Settings, TypePolicy, check_changes, read
from windlass.settings.values import parse

__all__ = [
    "ALL",
    "DEFAULTS",
    "KEY",
    "PER_TYPE",
    "SECRET",
    "TENANTS",
    "Effective",
    "Settings",
    "TypePolicy",
    "check_changes",
    "parse",
    "read",
    "split",
]
