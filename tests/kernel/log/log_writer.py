"""A process that appends to a file store and prints each id once it is told: killed by the tests."""

import asyncio
import sys
from pathlib import Path

from kernel.log.file import FileLog


async def _write(root: Path, start: int) -> None:
    log = FileLog(root, fsync="never", rotate_bytes=20_000)
    n = start
    while True:
        ids = await log.append_many("s", [{"n": str(n + k).encode()} for k in range(3)])
        sys.stdout.write(f"{n} {ids[-1]}\n")
        sys.stdout.flush()
        n += 3


if __name__ == "__main__":
    asyncio.run(_write(Path(sys.argv[1]), int(sys.argv[2])))
