"""What the C library does with memory that is free again.

glibc serves large blocks from the operating system and gives them back at once, until the first of them is freed: then
it takes blocks of that size from its heap as well, where a small one that lives on above keeps them all. Each thread
has a heap of its own besides. A process that moves parts of many megabytes would hold twice what it uses.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_LARGE: Final = 1 << 20
"""Bytes of a block that comes from the operating system and goes back to it."""
_ARENAS: Final = 2


@lru_cache(1)
def give_back_large_blocks() -> bool:
    """Lets this process give large blocks back when they are free; False where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE), (_ARENA_MAX, _ARENAS))
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)
