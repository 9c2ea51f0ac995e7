"""One of several processes of ingest: `python -m cli.ingest_child`, which only `fetchbox serve` runs.

Its configuration comes by stdin, so that no secret stands on a command line. Stdout gets one line: that it serves, or
why it cannot. When stdin ends the parent has gone, and the process drains.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from cli.ingest_processes import READY
from cli.problems import CommandError
from cli.serve import Role, run
from fetchbox.config.v1.config_pb2 import Config


class _Told:
    """The last duty: it tells the parent that all others have begun, and watches whether the parent is there."""

    name = "told"

    async def start(self) -> None:
        """Tells."""
        threading.Thread(target=_drain_alone, daemon=True, name=self.name).start()
        os.write(1, READY)
        os.dup2(2, 1)  # what handlers print has a reader there

    async def drain(self, grace: float) -> None:
        """Nothing to wait for."""

    async def stop(self) -> None:
        """Nothing to end: the thread ends with the process."""


def _drain_alone() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Serves until SIGTERM; the exit code."""
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    config = Config.FromString(sys.stdin.buffer.read(size))
    try:
        run(config, [Role.INGEST], duties=[_Told()])
    except CommandError as error:
        os.write(1, f"{error.message.splitlines()[0]}\n".encode())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
