"""Who calls is decided by the headers: before that no message is read, and so many calls are served at a time."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1 import job_pb2, operator_service_pb2, operator_service_pb2_grpc
from kernel.auth import OPERATOR, TENANT
from kernel.config import loading as configuration
from kernel.rpc.server import GrpcServer
from kernel.telemetry import metrics

ROOT = Path(__file__).parents[2]
SERVICES = ("ingest", "task", "flow", "worker", "operator")
OPERATORS = "fetchbox.operator.v1.OperatorService"
BIG = 25 << 20
FLAT = 16 << 20
"""What the process may grow by, in bytes: far less than one message."""


class Answers(operator_service_pb2_grpc.OperatorServiceServicer):
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def GetJob(self, request, context):  # noqa: N802 - gRPC's name and arguments
        self.begun.release()
        await self.go.wait()
        return job_pb2.Job(job_id=request.job_id)

    async def ExportJobs(self, request, context):  # noqa: N802 - gRPC's name and arguments
        self.begun.release()
        yield job_pb2.Job(job_id="one")
        await self.go.wait()


def _config(**limits: int) -> Config:
    config = configuration.defaults()
    config.security.operator_tokens.append("op-token")
    config.security.tenant_tokens["alpha-token"] = "alpha"
    config.security.tenant_tokens["beta-token"] = "beta"
    for name, value in limits.items():
        setattr(config.rpc, name, value)
    return config


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., object]]:
    servers: list[GrpcServer] = []

    async def start(config: Config, add: Callable[[grpc.aio.Server], object], names: list[str]) -> grpc.aio.Channel:
        server = GrpcServer("test", "127.0.0.1:0", config, add, names, roles=(OPERATOR, TENANT))
        await server.start()
        servers.append(server)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        channels.append(channel)
        return channel

    channels: list[grpc.aio.Channel] = []
    yield start
    for channel in channels:
        await channel.close()
    for server in servers:
        await server.stop()


def _everything() -> Iterator[tuple[str, bool, bool]]:
    """Every RPC of ours: its path, whether it answers with a stream, whether strangers may call."""
    from fetchbox.gateway.v1 import options_pb2  # noqa: PLC0415  # beside its only use

    for name in SERVICES:
        module = import_module(f"fetchbox.{name}.v1.{name}_service_pb2")
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                rest = method.GetOptions().Extensions[options_pb2.rest]
                yield f"/{service.full_name}/{method.name}", method.server_streaming, rest.to_strangers


def _add_all(server: grpc.aio.Server) -> None:
    for name in SERVICES:
        stubs = import_module(f"fetchbox.{name}.v1.{name}_service_pb2_grpc")
        service = f"{name.capitalize()}Service"
        getattr(stubs, f"add_{service}Servicer_to_server")(getattr(stubs, f"{service}Servicer")(), server)


def _names() -> list[str]:
    return sorted({path.split("/")[1] for path, _, _ in _everything()})


async def _silence() -> AsyncIterator[bytes]:
    """A message that never comes."""
    await asyncio.Event().wait()
    yield b""


async def _refusal(channel: grpc.aio.Channel, path: str, *, streams: bool, token: str = "") -> grpc.aio.AioRpcError:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    if streams:
        answer: Any = channel.stream_stream(path)(_silence(), metadata=metadata, timeout=60).read()
    else:
        answer = channel.stream_unary(path)(_silence(), metadata=metadata, timeout=60)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value


def _reason(error: grpc.aio.AioRpcError) -> str:
    info = ErrorInfo()
    assert rpc_status.from_call(error).details[0].Unpack(info)
    return str(info.reason)


async def test_no_rpc_waits_for_the_message_of_a_caller_that_is_not_known(serve) -> None:
    channel = await serve(_config(), _add_all, _names())
    for path, streams, to_strangers in _everything():
        for token in ("", "wrong") if not to_strangers else ("wrong",):
            error = await _refusal(channel, path, streams=streams, token=token)
            assert (error.code(), _reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHORIZED"), path


async def test_a_role_that_may_not_call_is_refused_before_its_message(serve) -> None:
    config, answers = _config(), Answers()

    def add(server: grpc.aio.Server) -> None:
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(answers, server)

    server = GrpcServer("operator", "127.0.0.1:0", config, add, [OPERATORS])
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        error = await _refusal(channel, f"/{OPERATORS}/GetJob", streams=False, token="alpha-token")
        assert _reason(error) == "FORBIDDEN"
    await server.stop()


async def test_a_stranger_may_send_a_small_message_and_has_to_send_it(serve) -> None:
    config = _config()
    config.security.max_stranger_bytes = 1024
    channel = await serve(config, _add_all, _names())
    for path in [path for path, _, to_strangers in _everything() if to_strangers]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(bytes(1024 + (64 << 10) + 1))
        assert _reason(caught.value) == "PAYLOAD_TOO_LARGE"
        assert "security.max_stranger_bytes" in (caught.value.details() or "")
    config.rpc.stranger_timeout.FromMilliseconds(50)
    channel = await serve(config, _add_all, _names())
    for path in [path for path, _, to_strangers in _everything() if to_strangers]:
        error = await _refusal(channel, path, streams=False)
        assert (_reason(error), "rpc.stranger_timeout" in (error.details() or "")) == ("RATE_LIMITED", True)


async def test_a_message_that_is_no_protobuf_is_told_so(serve) -> None:
    channel = await serve(_config(), _add_all, _names())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(f"/{OPERATORS}/GetJob")(b"\xff", metadata=[("authorization", "Bearer op-token")])
    assert _reason(caught.value) == "INVALID_PAYLOAD"


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.parametrize("method", ["ReplayDeadLetters", "ExportJobs"])
def test_a_large_message_of_a_caller_that_is_not_known_costs_no_memory(method: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kernel.grpc_process"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]) as channel:
            call = channel.unary_unary(f"/{OPERATORS}/{method}")
            with pytest.raises(grpc.RpcError):
                call(b"", timeout=60)
            before = _peak(process.pid)
            for _ in range(3):
                with pytest.raises(grpc.RpcError) as caught:
                    call(bytes(BIG), timeout=60)
                assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert _peak(process.pid) - before < FLAT
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def _refused(reason: str) -> float:
    return metrics.CALLS_REFUSED.labels("grpc", reason)._value.get()  # the registry has no better way


async def test_one_call_too_many_is_refused_counted_and_served_when_there_is_room(serve) -> None:
    answers = Answers()
    channel = await serve(
        _config(max_calls=2),
        lambda server: operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(answers, server),
        [OPERATORS],
    )
    stub = operator_service_pb2_grpc.OperatorServiceStub(channel)
    metadata = [("authorization", "Bearer op-token")]
    request = operator_service_pb2.GetJobRequest(job_id="a")
    running = [asyncio.ensure_future(stub.GetJob(request, metadata=metadata)) for _ in range(2)]
    for _ in running:
        await answers.begun.acquire()
    before = _refused("calls")
    error = await _refusal(channel, f"/{OPERATORS}/GetJob", streams=False, token="op-token")
    assert (error.code(), _reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
    assert "rpc.max_calls" in (error.details() or "")
    assert _refused("calls") == before + 1
    # A stranger is told that it is one, and takes no place.
    assert _reason(await _refusal(channel, f"/{OPERATORS}/GetJob", streams=False)) == "UNAUTHORIZED"
    answers.go.set()
    await asyncio.gather(*running)
    assert (await stub.GetJob(request, metadata=metadata)).job_id == "a"


async def test_the_streams_of_a_tenant_are_bounded_and_leave_room_for_others(serve) -> None:
    answers = Answers()
    channel = await serve(
        _config(max_streams=3, max_streams_per_tenant=2),
        lambda server: operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(answers, server),
        [OPERATORS],
    )
    stub = operator_service_pb2_grpc.OperatorServiceStub(channel)
    path = f"/{OPERATORS}/ExportJobs"

    async def opened(token: str) -> grpc.aio.UnaryStreamCall:
        call = stub.ExportJobs(
            operator_service_pb2.ExportJobsRequest(), metadata=[("authorization", f"Bearer {token}")]
        )
        assert (await call.read()).job_id == "one"
        return call

    first, _second = await opened("alpha-token"), await opened("alpha-token")
    error = await _refusal(channel, path, streams=True, token="alpha-token")
    assert _reason(error) == "RATE_LIMITED"
    assert "rpc.max_streams_per_tenant" in (error.details() or "")
    await opened("beta-token")
    error = await _refusal(channel, path, streams=True, token="op-token")
    assert "rpc.max_streams" in (error.details() or "")
    first.cancel()
    async with asyncio.timeout(60):
        while not await _opens(opened("alpha-token")):  # the server learns of the cancellation in its own time
            pass


async def _opens(opening: Awaitable[object]) -> bool:
    try:
        await opening
    except grpc.aio.AioRpcError as error:
        return _reason(error) != "RATE_LIMITED"
    return True


async def test_one_connection_too_many_is_closed(serve) -> None:
    answers = Answers()
    answers.go.set()

    def add(server: grpc.aio.Server) -> None:
        operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(answers, server)

    server = GrpcServer("operator", "127.0.0.1:0", _config(max_connections=1), add, [OPERATORS])
    await server.start()
    own = [("grpc.use_local_subchannel_pool", 1)]
    request, metadata = operator_service_pb2.GetJobRequest(job_id="a"), [("authorization", "Bearer op-token")]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=own) as first:
        await operator_service_pb2_grpc.OperatorServiceStub(first).GetJob(request, metadata=metadata)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=own) as second:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await operator_service_pb2_grpc.OperatorServiceStub(second).GetJob(request, metadata=metadata)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    await server.stop()
