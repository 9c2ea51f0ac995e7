"""A gateway in front of a real gRPC service whose contract is written in the test: rules in, behaviour in, HTTP out."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.api import annotations_pb2, http_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from fetchbox.config.v1.config_pb2 import Security
from fetchbox.gateway.v1 import options_pb2
from gateway.codec import Codec
from gateway.endpoint import endpoints
from gateway.entrance import Entrance
from gateway.errors import ErrorPrinter
from gateway.forwarded import Forwarding
from gateway.handler import Handler
from gateway.hosts import Hosts
from gateway.limits import Limits
from gateway.options import Options
from gateway.server import HttpServer
from gateway.upstream import Upstream

SERVICE = "test.v1.TestService"


def new_pool(files: descriptor_pb2.FileDescriptorSet) -> descriptor_pool.DescriptorPool:
    """A pool of its own with these files."""
    pool = descriptor_pool.DescriptorPool()
    for proto in files.file:
        pool.Add(proto)
    return pool


@dataclass
class Rule:
    """One RPC of the test's service. `types` are full names, `rest` the arguments of the option."""

    name: str
    http: dict[str, Any]
    types: tuple[str, str] = ("echo.v1.Thing", "echo.v1.Thing")
    streams: bool = False
    rest: dict[str, Any] = field(default_factory=dict)
    client_streams: bool = False


def add_service(pool: descriptor_pool.DescriptorPool, rules: Sequence[Rule], file: str = "echo.proto") -> Any:
    """The descriptor of a service with these RPCs, added to the pool. `file` is where their types come from."""
    proto = descriptor_pb2.FileDescriptorProto(name="test_service.proto", package="test.v1", syntax="proto3")
    proto.dependency.append(file)
    service = proto.service.add(name="TestService")
    for rule in rules:
        method = service.method.add(
            name=rule.name,
            input_type=f".{rule.types[0]}",
            output_type=f".{rule.types[1]}",
            server_streaming=rule.streams,
            client_streaming=rule.client_streams,
        )
        method.options.Extensions[annotations_pb2.http].CopyFrom(http_pb2.HttpRule(**rule.http))
        method.options.Extensions[options_pb2.rest].CopyFrom(options_pb2.Rest(**rule.rest))
    pool.Add(proto)
    return pool.FindServiceByName(SERVICE)


@dataclass
class Call:
    """What the service saw."""

    rpc: str
    request: Any
    metadata: dict[str, Any]
    context: Any


Unary = Callable[[Call], Awaitable[Message]]
Streaming = Callable[[Call], AsyncIterator[Message]]


class Behaviours(grpc.GenericRpcHandler):
    """Serves the RPCs of a service by functions; remembers every call."""

    def __init__(self, service: Any, functions: dict[str, Unary | Streaming]) -> None:
        self._methods = {f"/{service.full_name}/{method.name}": method for method in service.methods}
        self._functions = functions
        self.calls: list[Call] = []

    def service(self, details: Any) -> Any:
        method = self._methods.get(details.method)
        if method is None:
            return None
        request = message_factory.GetMessageClass(method.input_type).FromString
        function: Any = self._functions.get(method.name, _empty(method))

        async def unary(message: Any, context: Any) -> Message:
            return await function(self._note(method, message, context))

        async def uploading(messages: Any, context: Any) -> Message:
            calls = [self._note(method, message, context) async for message in messages]
            return await function(calls[0]) if calls else await _empty(method)(None)

        async def streaming(message: Any, context: Any) -> AsyncIterator[Message]:
            async for answer in function(self._note(method, message, context)):
                yield answer

        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(uploading, request, _serialize)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(streaming, request, _serialize)
        return grpc.unary_unary_rpc_method_handler(unary, request, _serialize)

    def _note(self, method: Any, message: Any, context: Any) -> Call:
        call = Call(method.name, message, dict(context.invocation_metadata() or ()), context)
        self.calls.append(call)
        return call


def _empty(method: Any) -> Unary:
    async def answer(_call: Call | None) -> Message:
        return message_factory.GetMessageClass(method.output_type)()

    return answer


@dataclass
class Gateway:
    """A running gateway and the service behind it."""

    url: str
    port: int
    server: HttpServer
    behaviours: Behaviours
    pool: descriptor_pool.DescriptorPool
    grpc_server: grpc.aio.Server

    @property
    def calls(self) -> list[Call]:
        return self.behaviours.calls

    def new(self, name: str, **fields: Any) -> Any:
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))(**fields)


@asynccontextmanager
async def running(
    pool: descriptor_pool.DescriptorPool,
    service: Any,
    functions: dict[str, Any],
    *,
    limits: Limits | None = None,
    target: str = "",
    options: Options | None = None,
    forwarding: Forwarding | None = None,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
    security: Security | None = None,
    connections: int = 1,
) -> AsyncIterator[Gateway]:
    """A gateway on a free port in front of the service, or in front of `target`."""
    behaviours = Behaviours(service, functions)
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers((behaviours,))
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    upstream = Upstream(target or f"127.0.0.1:{port}", connections=connections)
    codec = Codec(pool, options)
    served = list(endpoints({service: upstream}, codec))
    read = {name for endpoint in served for name in endpoint.route.rest.request_headers}
    handler = Handler(
        served,
        ErrorPrinter(Codec(descriptor_pool.Default())),
        limits or Limits(body=1 << 20, heartbeat=15.0),
        Entrance(Hosts("127.0.0.1:0", hosts), security, origins, read),
        forwarding=forwarding or Forwarding(["127.0.0.0/8"]),
    )
    server = HttpServer("127.0.0.1:0", handler, [upstream])
    await server.start()
    try:
        url = f"http://127.0.0.1:{server.port}"
        yield Gateway(url, server.port, server, behaviours, pool, grpc_server)
    finally:
        await server.stop()
        await grpc_server.stop(None)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
