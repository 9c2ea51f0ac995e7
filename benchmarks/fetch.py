"""What a small file costs the fetcher, beside a bare script of aiohttp and obstore that checks nothing.

    python -m benchmarks.fetch [--files 3000] [--rounds 4] [--slots 64] [--bytes 10240]

Both fetch the same files over keep-alive from a server in a process of its own and store them in the same SeaweedFS, in
turns, in this process, which looks for garbage as seldom as a worker; then again with a store that costs nothing. The
fetcher's host gates and circuit breakers are in a real Valkey. The CPU is this process's own, all threads; the best of
the rounds counts, since the machine has other things to do. Every file must be stored, or the run ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import aiohttp
import obstore
import uvloop
from obstore.store import S3Store

from cli.embedded.stack import EmbeddedStack
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.breakers import Breakers
from kernel.breakers.hostgate import RedisHostGates
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.garbage import collect_seldom
from kernel.objects import ObjectStore
from kernel.redis.clients import RedisClients
from worker_svc.fetch import Fetcher, policy_of
from worker_svc.fetch.sink import Objects

Work = Callable[[int], Awaitable[None]]


class Site(asyncio.Protocol):
    """Answers every request with the same bytes."""

    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answers every request in the bytes."""
        for _ in range(data.count(b"\r\n\r\n")):
            self._transport.write(self.answer)


async def serve(size: int) -> None:
    """Serves files of one size until it is ended; prints its port first."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
    Site.answer = head.encode() + os.urandom(size)
    server = await asyncio.get_running_loop().create_server(Site, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Nowhere:
    """A store that costs nothing."""

    async def put(self, bucket: str, key: str, body: bytes, **_: Any) -> bool:
        """Forgets an object."""
        return bool(bucket and key and body)

    def upload(self, *_: Any, **__: Any) -> Any:
        """Files that large are not measured here."""
        raise NotImplementedError


async def bare(stack: AsyncExitStack, url: str, config: Config, *, store: bool) -> Work:
    """The script: get, read, put."""
    connector = aiohttp.TCPConnector(limit=0)
    session = await stack.enter_async_context(
        aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
    )
    settings = config.object_store
    target = S3Store(
        settings.bucket,
        endpoint=settings.endpoint,
        access_key_id=settings.access_key_id,
        secret_access_key=settings.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )

    async def one(number: int) -> None:
        async with session.get(f"{url}/{number}") as answer:
            answer.raise_for_status()
            body = await answer.read()
        if store:
            await obstore.put_async(target, f"bare/{number}", body, use_multipart=False)

    return one


async def ours(stack: AsyncExitStack, url: str, config: Config, *, store: bool) -> Work:
    """The fetcher as a worker has it."""
    objects = ObjectStore(config.object_store)
    stack.push_async_callback(objects.close)
    redis = await RedisClients.open(config.redis)
    stack.push_async_callback(redis.close)
    clock = SystemClock()
    sink = cast("Objects", objects if store else Nowhere())
    breakers = Breakers(redis, config.circuit_breaker, clock)
    stack.push_async_callback(breakers.stop)
    fetcher = Fetcher(config, sink, RedisHostGates(redis.commands, clock), clock, breakers=breakers)
    await fetcher.start()
    stack.push_async_callback(fetcher.close)

    async def one(number: int) -> None:
        task = DownloadTask(job_id="bench", job_type="default", resource_id=str(number), url=f"{url}/{number}")
        await fetcher.fetch(task, policy_of(config, task))

    return one


async def run(work: Work, files: int, slots: int) -> tuple[float, float]:
    """Files a second, and microseconds of CPU a file."""
    numbers = iter(range(files))

    async def slot() -> None:
        for number in numbers:
            await work(number)

    cpu, began = _cpu(), time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(slots)))
    return files / (time.perf_counter() - began), (_cpu() - cpu) / files * 1e6


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(url: str, config: Config, arguments: argparse.Namespace) -> None:
    """Both, in turns, with both stores."""
    objects = ObjectStore(config.object_store)
    await objects.ensure_bucket()
    await objects.close()
    print(f"{'store':10} {'who':6} {'files/s':>9} {'us CPU':>8}")
    for store in (True, False):
        async with AsyncExitStack() as stack:
            works = {
                "bare": await bare(stack, url, config, store=store),
                "ours": await ours(stack, url, config, store=store),
            }
            collect_seldom()
            best: dict[str, tuple[float, float]] = {name: (0.0, float("inf")) for name in works}
            for work in works.values():
                await run(work, arguments.files // 10, arguments.slots)
            for _ in range(arguments.rounds):
                for name, work in works.items():
                    rate, cost = await run(work, arguments.files, arguments.slots)
                    best[name] = (max(rate, best[name][0]), min(cost, best[name][1]))
        report("SeaweedFS" if store else "nowhere", best)
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


def report(store: str, best: Mapping[str, tuple[float, float]]) -> None:
    """Prints both and what ours is of bare."""
    for name, (rate, cost) in best.items():
        print(f"{store:10} {name:6} {rate:9.0f} {cost:8.0f}")
    print(f"{store:10} ratio  {best['ours'][0] / best['bare'][0]:9.2f} {best['ours'][1] / best['bare'][1]:8.2f}")


def main() -> None:
    """Starts the servers, measures, ends them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=10_240)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        uvloop.run(serve(arguments.bytes))
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}", end="")
    print("".join(f", {name} {version(name)}" for name in ("aiohttp", "obstore", "uvloop")))
    command = [sys.executable, "-m", "benchmarks.fetch", "--serve", "--bytes", str(arguments.bytes)]
    with tempfile.TemporaryDirectory() as data, EmbeddedStack(Path(data)) as stack:
        config = defaults()
        stack.configure(config)
        config.fetcher.allow_networks.append("127.0.0.0/8")
        config.fetcher.per_host = arguments.slots
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as site:
            assert site.stdout is not None
            try:
                uvloop.run(measure(f"http://127.0.0.1:{site.stdout.readline().strip()}", config, arguments))
            finally:
                site.terminate()


if __name__ == "__main__":
    main()
