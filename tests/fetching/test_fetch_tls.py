"""TLS: an end that is no cut, and a port that has none."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from kernel.errors import is_retryable
from tests.fetching.cases.proxy import forward, pool
from tests.fetching.cases.tls import client_context, server_context
from tests.fetching.origin import answer, then_close
from tests.fetching.world import FixedNames, World

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
DATA = b"data" * 1000


@asynccontextmanager
async def tls_over(authority: trustme.CA, ends: Callable[[ssl.SSLObject], None], body: bytes) -> AsyncIterator[int]:
    """A server of one answer whose end is made by hand; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received, sending = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server_context(authority, "127.0.0.1").wrap_bio(received, sending, server_side=True)

        async def done(call: Callable[[], object]) -> None:
            while not called(call):
                writer.write(sending.read())
                received.write(await reader.read(65_536))
            writer.write(sending.read())

        try:
            await done(tls.do_handshake)
            await done(lambda: tls.read(65_536))
            tls.write(HEAD + body)
            ends(tls)
            writer.write(sending.read())
            await writer.drain()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]


def called(call: Callable[[], object]) -> bool:
    """Whether the call needs no further bytes."""
    try:
        call()
    except ssl.SSLWantReadError:
        return False
    return True


def with_its_own_end(tls: ssl.SSLObject) -> None:
    called(tls.unwrap)


def without_an_end(_: ssl.SSLObject) -> None:
    pass


@pytest.mark.parametrize("size", [4000, 9 << 20])
@pytest.mark.parametrize("whole", [True, False])
async def test_the_end_of_a_body_is_known_only_from_the_end_of_tls(world: World, whole: bool, size: int) -> None:
    authority = trustme.CA()
    world.ssl_context = client_context(authority)
    ends = with_its_own_end if whole else without_an_end
    async with tls_over(authority, ends, bytes(size)) as port:
        url = f"https://127.0.0.1:{port}/"
        fetched = await world.fetch(url)
        assert (fetched.size, fetched.length_known, fetched.complete) == (size, False, whole)
        assert fetched.provenance().get("complete") == (None if whole else "unknown")
        world.job_type().require_complete = True
        if whole:
            await world.fetch(url, resource_id="r2")
            return
        assert world.metadata()["Metadata"]["complete"] == "unknown"
        failure = await world.fails(url, resource_id="r2")
        assert failure.code == "DOWNLOAD_INCOMPLETE"
        assert failure.facts["bytes_seen"] == size


async def test_without_tls_nobody_knows_and_a_length_is_enough(world: World) -> None:
    world.job_type().require_complete = True
    world.origin.on("/", then_close(HEAD + DATA))
    assert (await world.fails()).code == "DOWNLOAD_INCOMPLETE"
    world.origin.on("/", answer(DATA))
    assert (await world.fetch()).complete


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"\0" * 64], ids=["http", "ssh", "zeros"]
)
async def test_a_port_without_tls_is_not_asked_again(world: World, greeting: bytes) -> None:
    world.names = FixedNames({"plain.example": "127.0.0.1", "127.0.0.1": "127.0.0.1"})

    async def no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        writer.close()

    async with await asyncio.start_server(no_tls, "127.0.0.1") as plain:
        url = f"https://plain.example:{plain.sockets[0].getsockname()[1]}/"
        failure = await world.fails(url)
        assert failure.code == "DOWNLOAD_TLS_ABSENT", failure
        assert not is_retryable(failure.code)
        proxy = await world.another_origin(default=forward)
        failure = await world.fails(url, pools=(pool(world, "p", proxy.port),), fetcher=await world.new_fetcher())
        assert failure.code == "DOWNLOAD_TLS_ABSENT", failure
