"""The client of a contestant in Python, in the contestant's own environment: its `noop.py` says how.

    python -P drive.py FOLDER MODULE enqueue JOBS PARALLEL   calls of one job each, so many at a time
    python -P drive.py FOLDER MODULE bulk JOBS BATCH         calls of many jobs, where the library has such a call
    python -P drive.py FOLDER MODULE latency JOBS PAUSE      one job after the other, with a pause in seconds
    python -P drive.py FOLDER MODULE finished                jobs that are complete by the library's own account

Prints one line of JSON.
"""

import asyncio
import importlib
import json
import sys
import time
from importlib.metadata import version
from typing import Any

import uvloop

_WARM_UP = 100
"""Jobs before the clock starts; they are counted with the others."""
_POLL_SECONDS = 0.001


def _payload(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Say hello to number {number}"}], "number": number}


async def _enqueue(client: Any, jobs: int, parallel: int) -> dict[str, Any]:
    numbers = iter(range(jobs))

    async def some(most: int) -> None:
        for _, number in zip(range(most), numbers, strict=False):
            await client.enqueue(_payload(number))

    await some(_WARM_UP)
    started = time.perf_counter()
    await asyncio.gather(*(some(jobs) for _ in range(parallel)))
    return {"per_second": (jobs - _WARM_UP) / (time.perf_counter() - started)}


async def _bulk(client: Any, jobs: int, batch: int) -> dict[str, Any]:
    if not hasattr(client, "enqueue_many"):
        return {"per_second": None}
    started = time.perf_counter()
    for at in range(0, jobs, batch):
        await client.enqueue_many([_payload(number) for number in range(at, min(jobs, at + batch))])
    return {"per_second": jobs / (time.perf_counter() - started)}


async def _latency(client: Any, jobs: int, pause: float) -> dict[str, Any]:
    """Milliseconds from the call to when another command sees the result; asked for once a millisecond."""
    found = []
    for number in range(jobs):
        started = time.perf_counter()
        job_id = await client.enqueue(_payload(number))
        while not await client.done(job_id):  # noqa: ASYNC110 - what another client sees is what counts
            await asyncio.sleep(_POLL_SECONDS)
        found.append(1000 * (time.perf_counter() - started))
        await asyncio.sleep(pause)
    return {"ms": found}


async def _run(module: Any, command: str, arguments: list[str]) -> dict[str, Any]:
    client = await module.Client.open()
    match command:
        case "enqueue":
            return await _enqueue(client, *map(int, arguments))
        case "bulk":
            return await _bulk(client, *map(int, arguments))
        case "latency":
            return await _latency(client, int(arguments[0]), float(arguments[1]))
        case _:
            return {"finished": await client.finished()}


def main() -> None:
    """Runs one command."""
    folder, name, command, *arguments = sys.argv[1:]
    sys.path.insert(0, folder)
    module = importlib.import_module(name)
    told = uvloop.run(_run(module, command, arguments))
    versions = ", ".join(f"{package} {version(package)}" for package in module.PACKAGES)
    print(json.dumps({**told, "versions": versions}), flush=True)


if __name__ == "__main__":
    main()
