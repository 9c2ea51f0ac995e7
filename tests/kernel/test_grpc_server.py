"""The gRPC server: health, reflection, credentials, validation, errors, TLS."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
import trustme
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1 import job_pb2, operator_service_pb2, operator_service_pb2_grpc
from kernel.auth import OPERATOR, TENANT, current_caller
from kernel.config import loading as configuration
from kernel.errors import not_found
from kernel.rpc.server import GrpcServer

NAME = "fetchbox.operator.v1.OperatorService"


class Answers(operator_service_pb2_grpc.OperatorServiceServicer):
    async def GetJob(self, request, context):  # noqa: N802 - gRPC's name
        if request.job_id == "missing":
            raise not_found("there is no job missing")
        if request.job_id == "bug":
            raise ZeroDivisionError("secret detail")
        return job_pb2.Job(job_id=request.job_id, status=current_caller().role)

    async def WatchJob(self, request, context):  # noqa: N802 - gRPC's name
        yield job_pb2.JobEvent(id="1")
        await asyncio.Event().wait()

    async def ExportJobs(self, request, context):  # noqa: N802 - gRPC's name
        yield job_pb2.Job(job_id="one")
        raise not_found("no more")


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Config], object]]:
    servers: list[GrpcServer] = []

    async def start(config: Config, **options: object) -> GrpcServer:
        def add(server: grpc.aio.Server) -> None:
            operator_service_pb2_grpc.add_OperatorServiceServicer_to_server(Answers(), server)

        server = GrpcServer("operator", "127.0.0.1:0", config, add, [NAME], **options)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()
        await server.stop()


def _stub(channel: grpc.aio.Channel) -> "operator_service_pb2_grpc.OperatorServiceAsyncStub":
    return operator_service_pb2_grpc.OperatorServiceStub(channel)


async def _get(channel: grpc.aio.Channel, job_id: str, token: str = "") -> job_pb2.Job:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    return await _stub(channel).GetJob(operator_service_pb2.GetJobRequest(job_id=job_id), metadata=metadata)


def _details(error: grpc.aio.AioRpcError) -> tuple[ErrorInfo, BadRequest]:
    status = rpc_status.from_call(error)
    info, request = ErrorInfo(), BadRequest()
    for packed in status.details:
        _ = packed.Unpack(info) or packed.Unpack(request)
    return info, request


async def test_a_drain_ends_what_would_go_on_for_ever_and_says_so(serve) -> None:
    server = await serve(configuration.defaults())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        watching = _stub(channel).WatchJob(operator_service_pb2.WatchJobRequest(job_id="j"))
        assert (await watching.read()).id == "1"
        async with asyncio.timeout(30):
            await server.drain(3600)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await watching.read()
    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
    assert _details(ended.value)[0].reason == "UNAVAILABLE"


async def test_health_and_reflection_answer_and_drain_tells(serve) -> None:
    server = await serve(configuration.defaults())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]))
        listed = [service.name async for answer in call for service in answer.list_services_response.service]
        assert NAME in listed


async def test_errors_leave_as_status_and_bugs_tell_nothing(serve) -> None:
    server = await serve(configuration.defaults())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _get(channel, "missing")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert _details(caught.value)[0].reason == "NOT_FOUND"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _get(channel, "bug")
        assert _details(caught.value)[0].reason == "INTERNAL_ERROR"
        assert "secret" not in (caught.value.details() or "")
        call = _stub(channel).ExportJobs(operator_service_pb2.ExportJobsRequest())
        assert (await call.read()).job_id == "one"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_requests_are_checked_against_their_proto(serve) -> None:
    server = await serve(configuration.defaults())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _get(channel, "a/b")
        info, request = _details(caught.value)
        assert info.reason == "INVALID_PAYLOAD"
        assert [violation.field for violation in request.field_violations] == ["job_id"]


@pytest.mark.req("R001-2.01", "R001-2.02", "R001-7.01")
async def test_tokens_close_what_was_open(serve) -> None:
    config = configuration.defaults()
    open_server = await serve(config)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{open_server.port}") as channel:
        assert (await _get(channel, "a")).status == "anyone"
    config.security.operator_tokens.append("op-token")
    config.security.tenant_tokens["tenant-token"] = "acme"
    server = await serve(config)
    both = await serve(config, roles=(OPERATOR, TENANT))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        assert (await _get(channel, "a", "op-token")).status == "operator"
        for token, reason in (("", "UNAUTHORIZED"), ("wrong", "UNAUTHORIZED"), ("tenant-token", "FORBIDDEN")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _get(channel, "a", token)
            assert _details(caught.value)[0].reason == reason
        for tokens in (("tenant-token", "op-token"), ("op-token", "op-token")):
            twice = [("authorization", f"Bearer {token}") for token in tokens]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _stub(channel).GetJob(operator_service_pb2.GetJobRequest(job_id="a"), metadata=twice)
            assert (_details(caught.value)[0].reason, "twice" in caught.value.details()) == ("UNAUTHORIZED", True)
        assert (await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())).status
    async with grpc.aio.insecure_channel(f"127.0.0.1:{both.port}") as channel:
        assert (await _get(channel, "a", "tenant-token")).status == "tenant"


async def test_a_port_that_is_taken_is_named(serve) -> None:
    config = configuration.defaults()
    config.security.tls.cert_file = ""
    blocker = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    port = blocker.add_insecure_port("127.0.0.1:0")
    await blocker.start()
    server = GrpcServer("operator", f"127.0.0.1:{port}", config, lambda _: None, [NAME])
    with pytest.raises(OSError, match=str(port)):
        await server.start()
    await blocker.stop(None)


@pytest.mark.req("R001-7.02")
async def test_mtls_admits_only_clients_with_a_certificate_of_the_authority(serve, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    pair = authority.issue_cert("localhost")
    config = configuration.defaults()
    tls = config.security.tls
    for name, blobs in (
        ("cert_file", pair.cert_chain_pems),
        ("key_file", [pair.private_key_pem]),
        ("client_ca_file", [authority.cert_pem]),
    ):
        path = tmp_path / f"{name}.pem"
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        setattr(tls, name, str(path))
    server = await serve(config)

    async def call(client: trustme.LeafCert | None) -> str:
        credentials = grpc.ssl_channel_credentials(
            authority.cert_pem.bytes(),
            client.private_key_pem.bytes() if client else None,
            client.cert_chain_pems[0].bytes() if client else None,
        )
        async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
            return (await _get(channel, "a")).job_id

    assert await call(authority.issue_cert("client")) == "a"
    for client in (None, stranger.issue_cert("client")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(client)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
