"""Our worker under a profile of CPU time, in place of `fetchbox`: `python -m benchmarks.peers.profiled ARGUMENTS`.

At its end it writes where the time went, by part and by function, to the file that `BENCH_PROFILE` names. Its start is
left out as far as it is imports. What uvloop and sockets take is booked on the call that runs the loop.
"""

import cProfile
import io
import os
import pstats
import time
from pathlib import Path

from benchmarks.peers.environment import FOLDER

_ROOT = f"{FOLDER.parent.parent}/"
_PARTS = ("kernel/lanes", "kernel/pipe", "kernel/ledger", "kernel/telemetry", "worker_svc", "kernel", "gen")
_LIBRARIES = ("prometheus", "protobuf", "hiredis", "redis", "grpc")
_RUNS_THE_LOOP = ("runners.py", "run")


def _part(file: str, function: str) -> str:
    if file.endswith(_RUNS_THE_LOOP[0]) and function == _RUNS_THE_LOOP[1]:
        return "loop and sockets"
    own = file.removeprefix(_ROOT)
    if own != file and not own.startswith(".venv"):
        return next((part for part in _PARTS if own.startswith(part)), "other")
    if "importlib" in file or function in ("<module>", "compile"):
        return "imports"
    text = function if file == "~" else file
    return next((name for name in (*_LIBRARIES, "asyncio") if name in text), "built-in" if file == "~" else "other")


def _told(profile: cProfile.Profile) -> str:
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    parts: dict[str, float] = {}
    for (file, _, function), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]  # typeshed lacks it
        name = _part(file, function)
        parts[name] = parts.get(name, 0.0) + own
    total = sum(parts.values())
    for name, own in sorted(parts.items(), key=lambda part: -part[1]):
        out.write(f"    {name:<18} {100 * own / total:5.1f} %\n")
    stats.sort_stats("tottime").print_stats(30)
    return out.getvalue()


def main() -> None:
    """Runs the command until its end."""
    from cli.main import main as fetchbox  # noqa: PLC0415 - its imports are not of interest

    profile = cProfile.Profile(time.process_time)
    try:
        profile.runcall(fetchbox)
    finally:
        Path(os.environ["BENCH_PROFILE"]).write_text(_told(profile), encoding="utf-8")


if __name__ == "__main__":
    main()
