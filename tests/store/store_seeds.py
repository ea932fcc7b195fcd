"""Where the dice of these tests begin: at the same numbers each time, so that a check speaks of the change it checks.

With TRIOMQ_SEED set, to any text, they begin elsewhere; bin/dev/soak-power-cuts and bin/dev/soak-kills always do.
"""

from __future__ import annotations

import os
import random


def seed_of(case: str) -> int:
    """Return the seed of one test case, and print it."""
    seed = random.Random(f"{os.environ.get('TRIOMQ_SEED', '')} {case}").randrange(1 << 30)
    print(f"seed {seed} of {case}")
    return seed
