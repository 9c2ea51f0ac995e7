"""Calls of the scripts of a job, packed mostly in advance: they are sent once or twice for every task.

All calls of one script on jobs differ in the id of the job, which stands in each key, and in their last arguments.
So the rest is packed once for each length of an id, with gaps where the id belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hiredis

from kernel.redis.clients import Arg
from kernel.redis.scripts import Script

_GAP = b"\0"
"""No id holds it: ids are key-safe."""


class JobCall:
    """One script with the arguments that are the same for every job."""

    def __init__(self, script: Script, keys: Callable[[str], Sequence[str]], fixed: Sequence[Arg]) -> None:
        self._script = script
        self._keys = keys
        self._fixed = fixed
        self._count = 3 + len(script.keys) + len(fixed)
        self._parts: dict[int, list[bytes]] = {}

    def pack(self, job_id: str, args: Sequence[Arg]) -> bytes:
        """The command, ready to be sent; `args` follow the fixed ones and are not empty."""
        name = job_id.encode()
        parts = self._parts.get(len(name))
        if parts is None:
            parts = self._parts[len(name)] = self._gapped(len(name))
        rest = _packed(tuple(args))
        return b"*%d\r\n%b%b" % (self._count + len(args), name.join(parts), rest)

    def _gapped(self, length: int) -> list[bytes]:
        keys = self._keys(_GAP.decode() * length)
        return _packed(("EVALSHA", self._script.sha, len(keys), *keys, *self._fixed)).split(_GAP * length)


def _packed(values: tuple[Arg, ...]) -> bytes:
    """The values as they stand in a command, without its head that tells how many."""
    whole: bytes = hiredis.pack_command(values)  # type: ignore[arg-type]  # its stub knows only tuples of one
    return whole[whole.index(b"\n") + 1 :]
