"""How many resources a second ingest accepts, beside the same tasks merely added to their stream.

    python -m benchmarks.accept [--manifests 100] [--resources 1000] [--parallel 8] [--rounds 3] [--profile]

`function` calls the service in this process; `grpc` calls it over loopback in a process of its own, as a gateway does.
`bare` adds the very tasks that ingest made, in a redis-py pipeline of one XADD each: no document, no check, no ledger,
no object. Every accepted job is counted again on the stream; a run that takes too long, or that loses a task, fails.
Ingest should reach half of `bare`.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import platform
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import uvloop
from google.api.httpbody_pb2 import HttpBody

from benchmarks.bars import MISSED
from cli.embedded.ports import free_ports
from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.ingest_service_pb2_grpc import IngestServiceStub
from ingest_svc.bootstrap import FULL_NAME, build
from kernel.config.loading import defaults
from kernel.redis import keys
from kernel.rpc.server import GrpcServer
from kernel.service.resources import Resources

BAR = 0.5
TIMEOUT = 120.0


def request(number: int, resources: int) -> SubmitJobRequest:
    """A manifest as a crawler makes them: 300 bytes a resource, two headers, two tags."""
    entries = [
        {
            "id": f"resource_{index:04}",
            "url": f"https://cdn.example.com/galleries/{number}/images/{index}/picture.jpg?size=large",
            "headers": {"Referer": f"https://example.com/galleries/{number}.html", "User-Agent": "Crawler/1.0"},
            "tags": {"content_type": "image/jpeg", "checksum_hint": f"sha256:{index:064x}"},
        }
        for index in range(resources)
    ]
    document = {"manifest_version": "v1", "metadata": {"gallery": number}, "resources": entries}
    body = HttpBody(content_type="application/json", data=json.dumps(document).encode())
    return SubmitJobRequest(job_type="default", idempotency_key=f"key-{number}-{time.time_ns()}", document=body)


class Registered:
    """Takes a service's methods as a gRPC server does, to call them without one."""

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """What stubs call beside the other: the same methods."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """The methods of a service, by `service/Method`."""
        self.methods |= {f"{service}/{name}": handler for name, handler in handlers.items()}


class Call:
    """What the service asks of the context of an RPC."""

    def invocation_metadata(self) -> tuple[()]:
        """No metadata."""
        return ()


async def through(calls: list[Callable[[], Awaitable[Any]]], parallel: int) -> float:
    """The seconds that the calls take, so many at a time."""
    waiting = iter(calls)

    async def one_after_the_other() -> None:
        for call in waiting:
            await call()

    started = time.perf_counter()
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(one_after_the_other() for _ in range(parallel)))
    return time.perf_counter() - started


async def entries(resources: Resources) -> int:
    """How many tasks there are."""
    redis = resources.redis.commands
    return sum([await redis.xlen(keys.stream(keys.TASKS, partition)) for partition in range(8)])


async def bare(resources: Resources, jobs: int, per_job: int, parallel: int) -> float:
    """The seconds of adding as many tasks as they are, a pipeline for each job."""
    redis = resources.redis.commands
    stream, payloads = "", []
    for partition in range(8):
        stream = keys.stream(keys.TASKS, partition)
        payloads = [fields[b"payload"] for _, fields in await redis.xrange(stream, count=per_job)]
        if payloads:
            break

    async def add() -> None:
        pipeline = redis.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(stream, {"payload": payload})
        await pipeline.execute()

    return await through([add] * jobs, parallel)


async def measure(config: Config, options: argparse.Namespace) -> dict[str, float]:
    """The seconds of one round, by way."""
    resources = await Resources.open(config)
    service = await build(config, resources)
    await service.start()
    registered = Registered()
    next(duty for duty in service.duties if isinstance(duty, GrpcServer)).register(registered)  # type: ignore[arg-type]  # it asks for no more
    submit = registered.methods[f"{FULL_NAME}/SubmitJob"].unary_unary
    try:
        seconds = {"function": await accepted(resources, options, lambda r: submit(r, Call()))}
        with serving(config) as address:
            async with grpc.aio.insecure_channel(address) as channel:
                stub = IngestServiceStub(channel)
                await stub.SubmitJob(request(-1, 1), wait_for_ready=True)
                seconds["grpc"] = await accepted(resources, options, stub.SubmitJob)
        seconds["bare"] = await bare(resources, options.manifests, options.resources, options.parallel)
        return seconds
    finally:
        await service.stop()
        await resources.close()


async def accepted(
    resources: Resources, options: argparse.Namespace, submit: Callable[[SubmitJobRequest], Awaitable[Any]]
) -> float:
    """The seconds of all submits; raises where a task is missing afterwards."""
    before = await entries(resources)
    requests = [request(number, options.resources) for number in range(options.manifests)]
    seconds = await through([lambda r=r: submit(r) for r in requests], options.parallel)  # type: ignore[misc]  # bound now
    added = await entries(resources) - before
    if added != options.manifests * options.resources:
        raise SystemExit(f"{added} tasks instead of {options.manifests * options.resources}")
    return seconds


@contextmanager
def serving(config: Config) -> Iterator[str]:
    """An ingest process of its own, on the same servers."""
    mine = Config()
    mine.CopyFrom(config)
    mine.ingest.listen = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.NamedTemporaryFile(suffix=".binpb") as file:
        file.write(mine.SerializeToString())
        file.flush()
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.accept", "--serve", file.name])
        try:
            yield mine.ingest.listen
        finally:
            process.terminate()
            process.wait()


async def serve(config: Config) -> None:
    """What the process of `serving` does."""
    resources = await Resources.open(config)
    service = await build(config, resources)
    await service.run_until_signal()
    await resources.close()


def configured(valkey: Valkey, s3: SeaweedFS) -> Config:
    """The defaults over these servers."""
    config = defaults()
    config.redis.addr = valkey.addr
    config.object_store.endpoint = s3.endpoint
    config.object_store.access_key_id = s3.access_key_id
    config.object_store.secret_access_key = s3.secret_access_key
    config.ingest.listen = f"127.0.0.1:{free_ports(1)[0]}"
    return config


def report(rounds: list[dict[str, float]], total: int) -> bool:
    """Prints the medians; whether both ways reach the bar."""
    names = ", ".join(f"{name} {version(name)}" for name in ("redis", "grpcio", "protobuf", "protovalidate", "obstore"))
    print(f"Python {platform.python_version()} on {platform.machine()}, {platform.platform()}; {names}")
    rates = {way: total / statistics.median(seconds[way] for seconds in rounds) for way in rounds[0]}
    for way, rate in rates.items():
        print(f"{way:9} {rate:10,.0f} resources/s   {rate / rates['bare']:.2f} of bare")
    return all(rate >= BAR * rates["bare"] for rate in rates.values())


def main() -> None:
    """Runs the benchmark; exits with 3 below the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifests", type=int, default=100)
    parser.add_argument("--resources", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="profile the function way")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(Config.FromString(Path(options.serve).read_bytes())))
        return
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            valkey, s3 = Valkey(Path(folder, "valkey")), SeaweedFS(Path(folder, "s3"))
            valkey.start()
            s3.start()
            try:
                rounds.append(profiled(configured(valkey, s3), options))
            finally:
                s3.stop()
                valkey.stop()
    if not report(rounds, options.manifests * options.resources):
        raise SystemExit(MISSED)


def profiled(config: Config, options: argparse.Namespace) -> dict[str, float]:
    """One round, with the profile on standard output where it is asked for."""
    if not options.profile:
        return uvloop.run(measure(config, options))
    profile = cProfile.Profile()
    seconds = profile.runcall(uvloop.run, measure(config, options))
    pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    return seconds


if __name__ == "__main__":
    main()
