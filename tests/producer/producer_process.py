"""A producer process for the tests that kill it.

usage: python producer_process.py ADDR DIRECTORY
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from producer_rig import settings

from kernel.service.resources import Resources
from producer_svc import bootstrap


async def _run(addr: str, folder: Path) -> None:
    config = settings(addr, folder)
    service = await bootstrap.build(config, await Resources.open(config))
    await service.run_until_signal()


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], Path(sys.argv[2])))
