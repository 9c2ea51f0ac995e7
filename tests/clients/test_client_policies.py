"""What the Python client does about deadlines, ends that are none, servers that ask to wait, TLS and credentials."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import trustme

from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox_client import (
    AsyncClient,
    Client,
    InvalidPayloadError,
    NotFoundError,
    PayloadTooLargeError,
    RateLimitedError,
    RetryPolicy,
    Tls,
    UnavailableError,
)
from fetchbox_client.retry import Attempts
from tests.clients.scripted import Scripted

HELLO = JobEvent(type="hello", data=b'{"job_id": "j"}')


def _events(*ids: str, kind: str = "token") -> list[JobEvent]:
    return [JobEvent(id=one, type=kind, data=b"{}") for one in ids]


def _ids(server: Scripted, **retry: Any) -> list[str]:
    policy = RetryPolicy(first_pause=0.001, **retry)
    with Client(f"127.0.0.1:{server.port}", retry=policy) as client:
        return [event.id or event.type for event in client.jobs.watch("j")]


def _credentials(ca: trustme.CA) -> grpc.ServerCredentials:
    issued = ca.issue_cert("localhost")
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


def test_a_connection_of_a_stream_has_a_deadline_and_the_stream_goes_on_behind_it() -> None:
    over = threading.Event()

    def hanging(context: Any) -> Iterator[JobEvent]:
        context.add_callback(over.set)
        yield from [HELLO, *_events("1-0")]
        over.wait(30)

    def ending(_context: Any) -> Iterator[JobEvent]:
        yield from [HELLO, *_events("2-0", kind="done")]

    with Scripted(hanging, ending) as server:
        assert _ids(server, stream_timeout=0.2) == ["hello", "1-0", "2-0"]
        assert server.cursors == ["", "1-0"]


def test_a_stream_that_ends_too_early_is_asked_for_again_until_the_record_has_ended() -> None:
    """A server that is stopped ends streams; one whose job has ended without a last event does so too."""

    def quiet(_context: Any) -> Iterator[JobEvent]:
        yield HELLO

    def late(_context: Any) -> Iterator[JobEvent]:
        yield from [HELLO, *_events("1-0")]
        server.status = "done"

    with Scripted(quiet, late, quiet) as server:
        assert _ids(server) == ["hello", "1-0"]
        assert server.cursors == ["", "", "1-0"]


def test_a_record_that_is_gone_ends_the_stream_and_other_refusals_are_raised() -> None:
    def gone(context: Any) -> Iterator[JobEvent]:
        yield from _events("1-0")
        context.abort(grpc.StatusCode.NOT_FOUND, "it has expired")

    def refusing(context: Any) -> Iterator[JobEvent]:
        yield from _events("1-0")
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such cursor")

    def lost(context: Any) -> Iterator[JobEvent]:
        yield from _events("1-0", kind="error")
        context.abort(grpc.StatusCode.UNAVAILABLE, "behind the last event nothing is missed")

    with Scripted(gone, refusing, lost) as server:
        assert _ids(server) == ["1-0"]
        with pytest.raises(Exception, match="no such cursor"):
            _ids(server)
        assert _ids(server) == ["1-0"]


def test_tls_token_and_tenant_go_with_each_call(tmp_path: Any) -> None:
    ca = trustme.CA()
    credentials = _credentials(ca)
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    with Scripted(credentials=credentials) as server:
        target = f"localhost:{server.port}"
        tls = Tls(ca=tmp_path / "ca.pem")
        with Client(target, token="t-1", tenant="acme", tls=tls) as client:
            assert client.jobs.get("j").job_id == "j"
        assert (server.metadata["authorization"], server.metadata["x-fetchbox-tenant"]) == ("Bearer t-1", "acme")
        assert "t-1" not in repr(client.jobs.__dict__), "a token is in no repr"
        stranger = Tls(ca=trustme.CA().cert_pem.bytes())
        with Client(target, tls=stranger, retry=RetryPolicy(attempts=1)) as other, pytest.raises(UnavailableError):
            other.jobs.get("j")


UNAVAILABLE = UnavailableError("", "UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)


def test_the_pause_is_what_the_server_asks_for() -> None:
    limited = RateLimitedError("", "RATE_LIMITED", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=2.5)
    assert Attempts(RetryPolicy(), 30, repeatable=True).failed(limited) == 2.5
    with pytest.raises(RateLimitedError):
        Attempts(RetryPolicy(), 2, repeatable=True).failed(limited)


def test_pauses_grow_and_end() -> None:
    policy = RetryPolicy(attempts=5, first_pause=0.1, longest_pause=0.3)
    attempts = Attempts(policy, 30, repeatable=True, key="k")
    pauses = []
    for _ in range(4):
        assert 0 < attempts.timeout() <= policy.attempt_timeout
        pauses.append(attempts.failed(UNAVAILABLE))
    for pause, ceiling in zip(pauses, (0.1, 0.2, 0.3, 0.3), strict=True):
        assert ceiling / 2 <= pause <= ceiling
    attempts.timeout()
    with pytest.raises(UnavailableError) as failed:
        attempts.failed(UNAVAILABLE)
    assert failed.value.idempotency_key == "k"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (NotFoundError, grpc.StatusCode.NOT_FOUND),
        (InvalidPayloadError, grpc.StatusCode.INVALID_ARGUMENT),
        (PayloadTooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_what_no_repetition_cures_is_raised_at_once(kind: Any, code: grpc.StatusCode) -> None:
    with pytest.raises(kind):
        Attempts(RetryPolicy(), 30, repeatable=True).failed(kind("", "", code))


def test_what_may_not_be_repeated_is_raised_at_once_and_has_the_whole_time() -> None:
    attempts = Attempts(RetryPolicy(attempt_timeout=1), 30, repeatable=False)
    assert attempts.timeout() > 1
    with pytest.raises(UnavailableError):
        attempts.failed(UNAVAILABLE)


def test_who_leaves_a_stream_ends_its_call() -> None:
    left = threading.Event()

    def endless(context: Any) -> Iterator[JobEvent]:
        context.add_callback(left.set)
        yield HELLO
        left.wait(30)

    with Scripted(endless) as server, Client(f"127.0.0.1:{server.port}") as client:
        for event in client.jobs.watch("j"):
            assert event.type == "hello"
            break
        assert left.wait(30)


async def test_the_async_client_resumes_and_leaves_over_tls() -> None:
    ca = trustme.CA()
    credentials = _credentials(ca)
    left = threading.Event()

    def breaking(context: Any) -> Iterator[JobEvent]:
        yield from [HELLO, *_events("1-0")]
        context.abort(grpc.StatusCode.UNAVAILABLE, "the server goes away")

    def endless(context: Any) -> Iterator[JobEvent]:
        context.add_callback(left.set)
        yield from [HELLO, *_events("2-0")]
        left.wait(30)

    with Scripted(breaking, endless, credentials=credentials) as server:
        retry = RetryPolicy(first_pause=0.001)
        tls = Tls(ca=ca.cert_pem.bytes())
        async with AsyncClient(f"localhost:{server.port}", token="t-1", tls=tls, retry=retry) as client:
            seen = []
            async with contextlib.aclosing(client.jobs.watch("j")) as events:
                async for event in events:
                    seen.append(event.id or event.type)
                    if event.id == "2-0":
                        break
            assert seen == ["hello", "1-0", "2-0"]
            assert await asyncio.to_thread(left.wait, 30)
            await client.jobs.get("j")
        assert (server.cursors, server.metadata["authorization"]) == (["", "1-0"], "Bearer t-1")
