"""An exporter for the tests that kill it: it exports for ever, in segments of random sizes.

usage: python -m tests.pipeline.export_process FOLDER < CONFIGURATION; it makes FOLDER/{pid} when it begins
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path

from google.protobuf import text_format

from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import FetchboxError
from kernel.service.resources import Resources
from tests.pipeline.export_rig import Rig


async def _run(config: Config, folder: Path) -> None:
    resources = await Resources.open(config)
    exporter = Rig(config, resources).partition()
    (folder / str(os.getpid())).touch()
    while True:
        config.exporter.max_rows = random.randint(5, 60)
        with contextlib.suppress(FetchboxError):
            await exporter.finish(lambda *_: None)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(_run(text_format.Parse(sys.stdin.read(), Config()), Path(sys.argv[1])))
