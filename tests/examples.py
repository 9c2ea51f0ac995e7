"""How many examples a property is tried with: a third by `make test`, all of them by `make test-long`."""

import os
from typing import Final

ALL: Final = "ALL_EXAMPLES" in os.environ


def most(examples: int) -> int:
    """`examples`, or a third of them but at least ten."""
    return examples if ALL else min(examples, max(10, examples // 3))
