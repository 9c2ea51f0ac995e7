"""An ingest process that dies at a named step of an accept: `python -m tests.ingest.dying_ingest CONFIG STEP`.

CONFIG is a file with a serialized Config. It prints a line once it serves.
"""

import asyncio
import os
import sys
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.bootstrap import build
from kernel.service.resources import Resources


async def serve(config: Config, deadly: str) -> None:
    def reached(step: str) -> None:
        if step == deadly:
            os._exit(9)

    resources = await Resources.open(config)
    service = await build(config, resources, reached)
    await service.start()
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Config.FromString(Path(sys.argv[1]).read_bytes()), sys.argv[2]))
