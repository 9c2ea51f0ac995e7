"""What the client library gets wrong, seen from outside: each of these failed with plain aiohttp 3.14."""

import asyncio
import time

from kernel.errors import is_retryable
from tests.fetching.origin import (
    Connection,
    Request,
    answer,
    chunked,
    drip,
    echo,
    redirect,
    then_close,
    then_hang,
    then_reset,
)
from tests.fetching.world import FixedNames, World

DATA = b"fifty bytes of data, more or less, in a small body"
CHUNKED = "Transfer-Encoding: chunked"


async def test_surplus_bytes_do_not_spoil_a_whole_body_nor_the_next(world: World) -> None:
    evil = answer(b"evil")
    for number, surplus in enumerate((b"garbage", b"\r\n", evil, evil + evil)):
        world.origin.on("/", answer(DATA) + surplus)
        world.origin.on("/next", answer(b"good"))
        await world.fetch(resource_id=f"a{number}")
        assert world.body(f"a{number}") == DATA
        await world.fetch("/next", resource_id=f"b{number}")
        assert world.body(f"b{number}") == b"good"


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(world: World) -> None:
    async def late(connection: Connection, _: Request) -> None:
        await connection.send(answer(DATA))
        await asyncio.sleep(0.05)
        await connection.send(answer(b"evil"))

    world.origin.on("/", late)
    world.origin.on("/next", answer(b"good"))
    await world.fetch()
    await asyncio.sleep(0.1)  # until the second answer, which nobody asked for, has come
    await world.fetch("/next")
    assert world.body() == b"good"


async def test_malformed_chunks_end_at_once(world: World) -> None:
    for framing in (b"5\r\nhelloX5\r\nworld\r\n0\r\n\r\n", b"zz\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n"):
        world.origin.on("/", then_hang(answer(framing, CHUNKED, length=None)))
        began = time.monotonic()
        assert (await world.fails()).code == "DOWNLOAD_PROTOCOL"
        assert time.monotonic() - began < 2


async def test_a_reset_is_no_end_of_a_body_without_length(world: World) -> None:
    world.origin.on("/", then_reset(b"HTTP/1.0 200 OK\r\n\r\n" + DATA))
    assert (await world.fails()).code == "DOWNLOAD_CONNECTION_RESET"


async def test_a_new_connection_that_is_lost_is_not_replayed(world: World) -> None:
    for script in (then_close(b""), then_reset(b"")):
        world.origin.seen.clear()
        world.origin.on("/", script)
        failure = await world.fails()
        assert failure.code == "DOWNLOAD_CONNECTION_RESET"
        assert is_retryable(failure.code)
        assert len(world.origin.seen) == 1


async def test_a_head_that_never_ends_is_given_up(world: World) -> None:
    world.settings().connect_timeout.FromMilliseconds(300)
    world.settings().read_timeout.FromMilliseconds(300)
    world.origin.on("/", drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.1))
    began = time.monotonic()
    assert (await world.fails()).code == "DOWNLOAD_READ_TIMEOUT"
    assert time.monotonic() - began < 2


async def test_the_deadline_ends_an_attempt(world: World) -> None:
    world.settings().timeout.FromMilliseconds(400)
    world.settings().low_speed_bytes = 0
    world.origin.on("/", drip(answer(b"", length=10_000), b"x", 0.05))
    failure = await world.fails()
    assert failure.code == "DOWNLOAD_DEADLINE"
    assert is_retryable(failure.code)


async def test_a_foreign_transfer_coding_is_refused(world: World) -> None:
    world.origin.on("/", answer(chunked(DATA), "Transfer-Encoding: gzip, chunked", length=None))
    assert (await world.fails()).code == "DOWNLOAD_PROTOCOL"


async def test_what_is_no_http_is_a_protocol_error(world: World) -> None:
    for line in (
        b"hello\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\0" * 100,
        b"HTTP/1.1 2000 OK\r\n\r\n",
    ):
        world.origin.on("/", then_close(line))
        assert (await world.fails()).code in {"DOWNLOAD_PROTOCOL", "DOWNLOAD_CONNECTION_RESET"}, line


async def test_cookies_do_not_travel(world: World) -> None:
    world.origin.on("/", answer(b"", "Set-Cookie: a=b; Path=/", "Location: /two", status="302 Found"))
    world.origin.on("/two", echo)
    await world.fetch()
    await world.fetch("/two")
    assert all(request.get("cookie") is None for request in world.origin.seen)


async def test_the_dialled_address_counts_and_not_the_first_one_looked_up(world: World) -> None:
    """DNS rebinding: the name is public when it is checked by anyone else, and private when it is dialled."""
    world.names = FixedNames({"rebound.example": "127.0.0.3"})
    other = await world.another_origin(host="127.0.0.3", default=answer(b"inner"))
    world.origin.on("/", redirect(other.url("/", "rebound.example")))
    assert (await world.fails()).code == "VALIDATION_BLOCKED_ADDRESS"
    assert other.connections == 0
