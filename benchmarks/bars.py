"""How a benchmark ends that has measured everything, and misses a bar."""

from typing import Final

MISSED: Final = 3
"""Its exit status. 1 is for a benchmark that fails: it lost work, took too long, or does not start."""
