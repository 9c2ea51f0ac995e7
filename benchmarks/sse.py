"""How long an event takes to an SSE client: through ingest and gateway, beside a bare XADD and XREAD.

    python -m benchmarks.sse [--jobs 200] [--events 5] [--watchers 0,200] [--json FILE]

Valkey (appendfsync always), SeaweedFS, ingest and gateway in processes of their own, all idle but for what is measured;
this process is the HTTP client. `accepted` is from the POST to its 202, `hello` and `first` from the POST to the
greeting and to the first durable event at a client that opens the stream after the 202. `event` is from an XADD into
the events of the job, as a bare worker writes it, to the event at the client; `token` the same, with the next XADD 2 ms
later whatever comes. `bare` is from an XADD to the return of an XREAD that waits for it, on two connections of their
own in the same run. Then all again while so many others watch jobs of their own. An event that does not come in time
fails the run. The exit code is 1 where the median of `first` or `event` reaches 10 ms, or their p99 30 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
import redis.asyncio
import uvloop

from benchmarks.bars import MISSED
from cli.embedded.ports import free_ports
from cli.embedded.process import LocalProcess
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from kernel.redis import keys

BARS = {"first": (10.0, 30.0), "event": (10.0, 30.0)}
"""Median and p99 in ms that are not to be reached."""
TIMEOUT = 300.0
_PATIENCE = 5.0
_PAUSE = 0.005
_TOKEN_PAUSE = 0.002
_COLUMNS = ("accepted", "hello", "first", "event", "token", "bare")

Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the processes are."""

    url: str
    redis_addr: str


def started(stack: ExitStack, data: Path) -> Platform:
    """Everything running; it ends with the stack."""
    valkey, seaweed = Valkey(data / "valkey"), SeaweedFS(data / "seaweedfs")
    for server in (valkey, seaweed):
        server.start()
        stack.callback(server.stop)
    ingest, gateway = free_ports(2)
    path = data / "fetchbox.toml"
    path.write_text(_toml(valkey, seaweed, ingest, gateway))
    for role, port in (("ingest", ingest), ("gateway", gateway)):
        argv = [sys.executable, "-m", "cli.main", "serve", f"--role={role}", f"--config={path}"]
        child = LocalProcess(role, argv, data / f"{role}.log", _listening(port), start_timeout=60)
        child.start()
        stack.callback(child.kill9)
    return Platform(f"http://127.0.0.1:{gateway}", valkey.addr)


def _listening(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    return ready


def _toml(valkey: Valkey, seaweed: SeaweedFS, ingest: int, gateway: int) -> str:
    return f"""
[redis]
addr = "{valkey.addr}"

[object_store]
endpoint = "{seaweed.endpoint}"
access_key_id = "{seaweed.access_key_id}"
secret_access_key = "{seaweed.secret_access_key}"

[ingest]
listen = "127.0.0.1:{ingest}"

[gateway]
listen = "127.0.0.1:{gateway}"
ingest = "127.0.0.1:{ingest}"
task = "127.0.0.1:{ingest}"

[tasks]
max_backlog = 1000000
chat = {{ handler = "remote" }}

[observability]
metrics_port = 0
log_level = "warn"
"""


class Client:
    """One who creates jobs and watches them, and the bare worker that writes their events."""

    def __init__(self, http: aiohttp.ClientSession, worker: redis.asyncio.Redis) -> None:
        self._http = http
        self._worker = worker

    async def create(self) -> str:
        """A job of its own."""
        async with self._http.post("/v1/jobs", json={"task": "chat", "payload": {"prompt": "x" * 200}}) as answer:
            if answer.status != 202:
                raise SystemExit(f"refused with {answer.status}: {await answer.text()}")
            return str((await answer.json())["job_id"])

    @asynccontextmanager
    async def watching(self, job_id: str) -> AsyncIterator[aiohttp.StreamReader]:
        """The stream of its events."""
        headers = {"Accept": "text/event-stream"}
        async with self._http.get(f"/v1/jobs/{job_id}/events", headers=headers) as answer:
            if answer.status != 200:
                raise SystemExit(f"no stream but {answer.status}: {await answer.text()}")
            yield answer.content

    async def write(self, job_id: str, number: int) -> None:
        """One event, as a bare worker writes it."""
        fields = {"type": "token", "ts": str(time.time_ns() // 10**6), "step": "bench", "data": f'{{"n":{number}}}'}
        await self._worker.xadd(keys.job_events(job_id), fields)  # type: ignore[arg-type]  # its dict is invariant


async def arrival(stream: Any, word: bytes) -> float:
    """When the next event was there; it must have this word in it."""
    async with asyncio.timeout(_PATIENCE):
        event = await stream.readuntil(b"\n\n")
    now = time.perf_counter()
    if word not in event:
        raise SystemExit(f"{word!r} was expected, not {event!r}")
    return now


async def measure(client: Client, times: Times, events: int) -> None:
    """One job from its POST to its last event."""
    begin = time.perf_counter()
    job_id = await client.create()
    times["accepted"].append(time.perf_counter() - begin)
    async with client.watching(job_id) as stream:
        times["hello"].append(await arrival(stream, b"event: hello\n") - begin)
        times["first"].append(await arrival(stream, b"event: queued\n") - begin)
        for number in range(events):
            await asyncio.sleep(_PAUSE)
            begin = time.perf_counter()
            arriving = asyncio.create_task(arrival(stream, b'"n":%d}' % number))
            await client.write(job_id, number)
            times["event"].append(await arriving - begin)
        await _tokens(client, stream, job_id, times, events)


async def _tokens(client: Client, stream: Any, job_id: str, times: Times, events: int) -> None:
    begun: list[float] = []

    async def write() -> None:
        for number in range(events):
            begun.append(time.perf_counter())
            await client.write(job_id, number)
            await asyncio.sleep(_TOKEN_PAUSE)

    writing = asyncio.create_task(write())
    for number in range(events):
        times["token"].append(await arrival(stream, b'"n":%d}' % number) - begun[number])
    await writing


async def bare(addr: str, count: int) -> list[float]:
    """XADD to XREAD on two connections, in s."""
    times: list[float] = []
    async with (
        redis.asyncio.Redis.from_url(f"redis://{addr}") as reader,
        redis.asyncio.Redis.from_url(f"redis://{addr}") as writer,
    ):
        last = await writer.xadd("bench", {"n": "0"})
        for _ in range(count):
            reading = asyncio.create_task(reader.xread({"bench": last}, block=int(_PATIENCE * 1000)))
            await asyncio.sleep(_PAUSE)
            begin = time.perf_counter()
            adding = asyncio.create_task(writer.xadd("bench", {"n": "0"}))
            await reading
            times.append(time.perf_counter() - begin)
            last = await adding
    return times


async def run(platform_: Platform, options: argparse.Namespace) -> dict[int, Times]:
    """The times in seconds, by the number of others that watch."""
    found: dict[int, Times] = {}
    worker = redis.asyncio.Redis.from_url(f"redis://{platform_.redis_addr}")
    async with (
        asyncio.timeout(TIMEOUT),
        aiohttp.ClientSession(platform_.url, connector=aiohttp.TCPConnector(limit=0)) as http,
        worker,
        AsyncExitStack() as others,
    ):
        client = Client(http, worker)
        others_now = 0
        await _warm(client, options.events)
        for wanted in options.watchers:
            for _ in range(wanted - others_now):
                stream = await others.enter_async_context(client.watching(await client.create()))
                await arrival(stream, b"event: hello\n")
                await arrival(stream, b"event: queued\n")
            others_now = wanted
            times: Times = {name: [] for name in _COLUMNS}
            for _ in range(options.jobs):
                await measure(client, times, options.events)
            times["bare"] = await bare(platform_.redis_addr, options.jobs)
            found[wanted] = times
    return found


async def _warm(client: Client, events: int) -> None:
    times: Times = {name: [] for name in _COLUMNS}
    for _ in range(20):
        await measure(client, times, events)


def summary(times: Times) -> dict[str, tuple[float, float]]:
    """Median and p99 of each, in ms."""
    return {
        name: (round(median(found) * 1000, 2), round(quantiles(found, n=100)[98] * 1000, 2))
        for name, found in times.items()
    }


def _report(found: dict[int, dict[str, tuple[float, float]]]) -> None:
    print(f"{'others watch':>12}" + "".join(f"{name:>16}" for name in _COLUMNS) + "   (ms: median, p99)")
    for watchers, figures in found.items():
        print(f"{watchers:>12}" + "".join(f"{figures[name][0]:>8.2f}{figures[name][1]:>8.2f}" for name in _COLUMNS))


def _missed(found: dict[int, dict[str, tuple[float, float]]]) -> Sequence[str]:
    return [
        f"{name} with {watchers} others: {figures[name][0]}, p99 {figures[name][1]}; not under {bar[0]} and {bar[1]} ms"
        for watchers, figures in found.items()
        for name, bar in BARS.items()
        if figures[name][0] >= bar[0] or figures[name][1] >= bar[1]
    ]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--events", type=int, default=5)
    parser.add_argument("--watchers", type=lambda text: sorted(map(int, text.split(","))), default=[0, 200])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
    print(
        f"{platform.platform()}, {machine}, " + ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "grpcio"))
    )
    with tempfile.TemporaryDirectory(prefix="fetchbox-sse-") as directory, ExitStack() as stack:
        times = uvloop.run(run(started(stack, Path(directory)), options))
    found = {watchers: summary(one) for watchers, one in times.items()}
    _report(found)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "ms": found}, indent=1))
    missed = _missed(found)
    print("\n".join(missed) or "every bar is met")
    raise SystemExit(MISSED if missed else 0)


if __name__ == "__main__":
    main()
