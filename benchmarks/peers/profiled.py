"""Our worker with samples of where its CPU time goes: `python -m benchmarks.peers.profiled ARGUMENTS of fetchbox`.

Every few milliseconds of CPU one sample: the Python function that runs, or that called what runs; so what uvloop and
sockets take counts for the function that sent, or for the loop. At the end it writes the shares, by part and by
function, to the file that `BENCH_PROFILE` names. Samples outside of the event loop, of imports above all, are left out.
"""

import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

from benchmarks.peers.environment import FOLDER

_INTERVAL = 0.001
"""Seconds of CPU; the kernel may round it up to its tick."""
_MOST_FUNCTIONS = 30
_ROOT = f"{FOLDER.parent.parent}/"
_PARTS = ("kernel/queue", "kernel/redis", "kernel/ledger", "kernel/telemetry", "worker_svc", "kernel", "gen")
_LIBRARIES = ("asyncio/runners", "asyncio", "json", "prometheus_client", "google/protobuf", "grpc", "redis")


def _part(file: str) -> str:
    own = file.removeprefix(_ROOT)
    if own != file and not own.startswith(".venv"):
        return next((part for part in _PARTS if own.startswith(part)), "other")
    return next((name for name in _LIBRARIES if f"/{name}" in file), "other")


class _Samples:
    """What was seen."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def take(self, _signal: int, frame: FrameType | None) -> None:
        """One sample, where the loop runs and nothing is imported."""
        at = frame
        while at is not None and "importlib" not in at.f_code.co_filename:
            if frame is not None and at.f_code.co_filename.endswith("asyncio/runners.py"):
                self._seen[frame.f_code.co_filename, frame.f_code.co_qualname] += 1
                return
            at = at.f_back

    def told(self) -> str:
        """The shares in percent, largest first."""
        parts: Counter[str] = Counter()
        for (file, _), count in self._seen.items():
            parts[_part(file)] += count
        total = max(1, parts.total())
        functions = [(f"{file.removeprefix(_ROOT)} {name}", count) for (file, name), count in self._seen.most_common()]
        rows = [*parts.most_common(), ("", 0), *functions[:_MOST_FUNCTIONS]]
        return "\n".join(f"    {100 * count / total:5.1f} %  {name}" if name else "" for name, count in rows)


def main() -> None:
    """Runs the command until its end."""
    from cli.main import main as fetchbox  # noqa: PLC0415 - its imports are not of interest

    samples = _Samples()
    signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
    try:
        fetchbox()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(os.environ["BENCH_PROFILE"]).write_text(samples.told() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
