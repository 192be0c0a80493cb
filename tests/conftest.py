"""How does Hypothesis search, here and in CI?"""

import os

from hypothesis import settings

# No deadline: a shared machine stalls now and then, and a stall is no bug.
settings.register_profile("home", deadline=None)
# CI tries the same examples each time, so that a change is blamed only for what it did.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")
