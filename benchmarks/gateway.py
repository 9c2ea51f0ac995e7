"""What a request costs at the gateway: CPU beside a raw pass-through and beside the usual forty lines of transcoder.

    python -m benchmarks.gateway [--requests 3000] [--connections 16] [--messages 20000]

Three gateways in processes of their own, in front of the same gRPC service: ours; `raw`, which is aiohttp and grpc.aio
passing prepared bytes, so the least that this pair can cost; and `naive`, which parses and prints by `json_format`.
The CPU is that of the gateway's process alone, from /proc, divided by the answers that were counted. An answer that is
not 200 ends the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import grpc
import uvloop
from aiohttp import web
from google.api import annotations_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, json_format
from google.protobuf.descriptor import ServiceDescriptor

from fetchbox.ingest.v1 import manifest_pb2
from fetchbox.operator.v1 import job_pb2, operator_service_pb2
from gateway.codec import Codec
from gateway.endpoint import endpoints
from gateway.entrance import Entrance
from gateway.errors import ErrorPrinter
from gateway.handler import Handler
from gateway.hosts import Hosts
from gateway.limits import Limits
from gateway.server import HttpServer
from gateway.upstream import Upstream

_RPC = "/bench.v1.Bench/"
_TICKS = os.sysconf("SC_CLK_TCK")

JOB = job_pb2.Job(
    job_id="018f4e2a-6b1c-7d2e-9f00-1a2b3c4d5e6f",
    job_type="gallery",
    status="in_progress",
    resource_total=42,
    resource_completed=17,
    manifest_key="s3://fetchbox/manifests/gallery/018f4e2a-6b1c-7d2e-9f00-1a2b3c4d5e6f/metadata.json",
    log_cursor=job_pb2.LogCursor(stream="jobs.logs", offset=1792039587840000),
)
JOB.created_at.FromMilliseconds(1_714_557_600_123)
JOB.updated_at.FromMilliseconds(1_714_557_601_456)
JOBS = operator_service_pb2.ListJobsResponse(jobs=[JOB] * 28)
MANIFEST = manifest_pb2.Manifest(
    manifest_version="v1",
    resources=[
        manifest_pb2.Resource(
            id=f"image_{index:04d}",
            url=f"https://cdn.example.com/gallery/2024/05/01/image-{index:06d}.jpg?size=large",
            headers={"Referer": "https://example.com/page.html", "User-Agent": "Crawler/1.0"},
            tags={"content_type": "image/jpeg"},
        )
        for index in range(50)
    ],
)
EVENT = job_pb2.JobEvent(
    id="1714557600123-0", type="progress", ts=1714557600123, step="worker", data=b'{"completed":17}'
)


def service() -> ServiceDescriptor:
    """The service of the benchmark, with messages of FetchBox."""
    proto = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench.v1", syntax="proto3")
    files = (job_pb2, operator_service_pb2, manifest_pb2)
    proto.dependency.extend(file.DESCRIPTOR.name for file in files)
    methods = proto.service.add(name="Bench").method
    job, job_request = ".fetchbox.operator.v1.Job", ".fetchbox.operator.v1.GetJobRequest"
    for name, taken, given, rule in (
        ("Get", job_request, job, {"get": "/jobs/{job_id}"}),
        ("One", job, job, {"post": "/one", "body": "*"}),
        ("Many", ".fetchbox.operator.v1.ListJobsResponse", job, {"post": "/many", "body": "*"}),
        ("Submit", ".fetchbox.ingest.v1.Manifest", job, {"post": "/submit", "body": "*"}),
        ("List", job_request, ".fetchbox.operator.v1.ListJobsResponse", {"get": "/list/{job_id}"}),
        ("Watch", job_request, ".fetchbox.operator.v1.JobEvent", {"get": "/watch/{job_id}"}),
    ):
        method = methods.add(name=name, input_type=taken, output_type=given, server_streaming=name == "Watch")
        for key, value in rule.items():
            setattr(method.options.Extensions[annotations_pb2.http], key, value)
    pool = descriptor_pool.Default()
    pool.Add(proto)
    return pool.FindServiceByName("bench.v1.Bench")


class _Backend(grpc.GenericRpcHandler):
    """Answers with bytes that are ready."""

    def __init__(self, messages: int) -> None:
        self._messages = messages

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]
        if name == "Watch":
            return grpc.unary_stream_rpc_method_handler(self._watch)
        answer = (JOBS if name == "List" else JOB).SerializeToString()

        async def unary(_request: bytes, _context: Any) -> bytes:
            return answer

        return grpc.unary_unary_rpc_method_handler(unary)

    async def _watch(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        event = EVENT.SerializeToString()
        for _ in range(self._messages):
            yield event


async def _serve_backend(messages: int) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Backend(messages),))
    _ready(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await asyncio.Event().wait()


async def _serve_ours(target: str) -> None:
    codec = Codec(descriptor_pool.Default())
    upstream = Upstream(target)
    limits = Limits(body=6 << 20, heartbeat=15)
    entrance = Entrance(Hosts("127.0.0.1:0", ["localhost"]))
    handler = Handler(endpoints({service(): upstream}, codec), ErrorPrinter(codec), limits, entrance)
    server = HttpServer("127.0.0.1:0", handler, [upstream])
    await server.start()
    _ready(server.port)
    await asyncio.Event().wait()


_Answer = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]


async def _serve_plain(target: str, *, raw: bool) -> None:
    channel = grpc.aio.insecure_channel(target, options=(("grpc.max_receive_message_length", -1),))
    known = {f"/{name.lower()}": name for name in ("One", "Many", "Submit", "Get", "List", "Watch")} | {"/jobs": "Get"}
    answer = _raw(channel) if raw else _naive(channel)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await answer(request, known["/" + request.path.split("/")[1]])

    server = await asyncio.get_running_loop().create_server(web.Server(handler=handle, access_log=None), "127.0.0.1", 0)
    _ready(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


def _raw(channel: grpc.aio.Channel) -> _Answer:
    """Prepared bytes both ways: what aiohttp and grpc.aio cost without any transcoding."""
    requests = {"Many": JOBS, "Submit": MANIFEST, "One": JOB}
    sent = {name: message.SerializeToString() for name, message in requests.items()}
    printed = {"List": _json(JOBS), "Watch": _json(EVENT) + b"\n"}
    job = _json(JOB)

    async def answer(request: web.BaseRequest, name: str) -> web.StreamResponse:
        await request.read()
        if name == "Watch":
            response = web.StreamResponse()
            await response.prepare(request)
            async for _ in channel.unary_stream(_RPC + name)(b""):
                await response.write(printed[name])
            return response
        await channel.unary_unary(_RPC + name)(sent.get(name, b""))
        return web.Response(body=printed.get(name, job), content_type="application/json")

    return answer


def _naive(channel: grpc.aio.Channel) -> _Answer:
    """What one writes first."""
    taken: dict[str, Any] = {
        "Many": operator_service_pb2.ListJobsResponse, "Submit": manifest_pb2.Manifest, "One": job_pb2.Job
    }  # fmt: skip
    given: dict[str, Any] = {"List": operator_service_pb2.ListJobsResponse, "Watch": job_pb2.JobEvent}

    async def answer(request: web.BaseRequest, name: str) -> web.StreamResponse:
        message = taken.get(name, operator_service_pb2.GetJobRequest)()
        body = await request.text()
        if body:
            json_format.Parse(body, message)
        else:
            message.job_id = request.path.split("/")[2]
        parse = given.get(name, job_pb2.Job).FromString
        if name == "Watch":
            response = web.StreamResponse()
            await response.prepare(request)
            async for event in channel.unary_stream(_RPC + name, None, parse)(message.SerializeToString()):
                await response.write(json_format.MessageToJson(event, indent=None).encode() + b"\n")
            return response
        found = await channel.unary_unary(_RPC + name, None, parse)(message.SerializeToString())
        return web.Response(text=json_format.MessageToJson(found), content_type="application/json")

    return answer


def _json(message: Any) -> bytes:
    return json.dumps(json_format.MessageToDict(message), separators=(",", ":")).encode()


def _ready(port: int) -> None:
    print(port, flush=True)


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request."""

    name: str
    wire: bytes
    streams: bool = False


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _post(target: str, body: bytes) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _workloads() -> list[Workload]:
    spaced = json.dumps(json_format.MessageToDict(JOBS)).encode()
    one, many, manifest = _json(JOB), _json(JOBS), _json(MANIFEST)
    return [
        Workload("GET, 400 B answer", _get("/jobs/j1")),
        Workload(f"POST {len(one)} B", _post("/one", one)),
        Workload(f"POST {len(many) / 1000:.1f} KB", _post("/many", many)),
        Workload(f"POST {len(spaced) / 1000:.1f} KB, spaced", _post("/many", spaced)),
        Workload(f"POST {len(manifest) / 1000:.1f} KB, raw fields", _post("/submit", manifest)),
        Workload("GET, 12 KB answer", _get("/list/j1")),
        Workload("stream, a message", _get("/watch/j1"), streams=True),
    ]


async def _client(port: int, wire: bytes, requests: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(requests):
        writer.write(wire)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 20"):
            raise SystemExit(f"refused: {head!r}")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            while (size := int(await reader.readline(), 16)) >= 0:
                await reader.readexactly(size + 2)
                if size == 0:
                    break
        else:
            await reader.readexactly(int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    writer.close()


def _cpu(pid: int) -> float:
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()  # noqa: PTH123, SIM115 - a pseudo-file
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _measure(pid: int, port: int, workload: Workload, count: int, connections: int) -> tuple[float, float]:
    """Microseconds of CPU a request, and requests a second."""
    await _client(port, workload.wire, 1 if workload.streams else 50)
    started, before = time.monotonic(), _cpu(pid)
    if workload.streams:
        await _client(port, workload.wire, 1)
    else:
        await asyncio.gather(*(_client(port, workload.wire, count // connections) for _ in range(connections)))
    spent, wall = _cpu(pid) - before, time.monotonic() - started
    return spent / count * 1e6, count / wall


def _start(stack: ExitStack, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    command = [sys.executable, "-m", "benchmarks.gateway", *arguments]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
    stack.callback(process.kill)
    assert process.stdout is not None
    told = process.stdout.readline()
    if not told:
        raise SystemExit(f"{' '.join(arguments)} does not start; see above")
    return process, int(told)


async def _run(options: argparse.Namespace) -> None:
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()},", end=" ")
    print(", ".join(f"{name} {version(name)}" for name in ("aiohttp", "grpcio", "protobuf", "orjson")))
    with ExitStack() as stack:
        _, backend_port = _start(stack, "--role=backend", f"--messages={options.messages}")
        target = f"--target=127.0.0.1:{backend_port}"
        gateways = {role: _start(stack, f"--role={role}", target) for role in ("ours", "raw", "naive")}
        print(f"\n{'CPU of the gateway, µs (requests a second)':44}" + "".join(f"{role:>18}" for role in gateways))
        for workload in _workloads():
            count = options.messages if workload.streams else options.requests
            cells = []
            for process, port in gateways.values():
                cpu, rate = await _measure(process.pid, port, workload, count, options.connections)
                cells.append(f"{cpu:8.0f} ({rate:6.0f})")
            print(f"{workload.name:44}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    """Runs the benchmark, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--messages", type=int, default=20000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--role", choices=["client", "backend", "ours", "raw", "naive"], default="client")
    parser.add_argument("--target", default="")
    options = parser.parse_args()
    roles: dict[str, Callable[[], Any]] = {
        "client": lambda: _run(options),
        "backend": lambda: _serve_backend(options.messages),
        "ours": lambda: _serve_ours(options.target),
        "raw": lambda: _serve_plain(options.target, raw=True),
        "naive": lambda: _serve_plain(options.target, raw=False),
    }
    uvloop.run(roles[options.role]())


if __name__ == "__main__":
    main()
