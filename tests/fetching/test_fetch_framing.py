"""The framing of a chunked body has the floor of speed and the ceiling of bytes that the body itself has."""

import asyncio

import pytest

from tests.fetching.origin import Answer, Connection, Request, answer, drip
from tests.fetching.world import World

HEAD = answer(b"", "Transfer-Encoding: chunked", length=None)
MIB = 1024 * 1024

ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "zeros-of-a-size": (b"", b"0" * 1000),
    "an-extension": (b"5;x=", b"y" * 1000),
    "extensions": (b"5", b";x=y" * 200),
    "a-trailer": (b"5\r\nabcde\r\n0\r\nx: ", b"y" * 1000),
    "trailers": (b"5\r\nabcde\r\n0\r\n", b"x: y\r\n" * 200),
    "extensions-of-small-chunks": (b"", b"1;" + b"x" * 500 + b"\r\na\r\n"),
}


def pouring(begin: bytes, piece: bytes) -> Answer:
    async def script(connection: Connection, _: Request) -> None:
        await connection.send(HEAD + begin)
        while not connection.writer.transport.is_closing():
            await connection.send(piece * 50)

    return script


@pytest.mark.parametrize("name", ENDLESS)
async def test_framing_without_end_is_cut(world: World, name: str) -> None:
    world.job_type().max_bytes = MIB
    world.origin.default = pouring(*ENDLESS[name])
    failure = await asyncio.wait_for(world.fails(), 20)
    assert failure.code in {"DOWNLOAD_TOO_LARGE", "DOWNLOAD_PROTOCOL", "DOWNLOAD_HEADERS_TOO_LARGE"}, failure


@pytest.mark.parametrize("name", ENDLESS)
async def test_framing_that_drips_is_too_slow(world: World, name: str) -> None:
    world.settings().low_speed_bytes = 1000
    world.settings().low_speed_window.FromMilliseconds(400)
    begin, piece = ENDLESS[name]
    world.origin.default = drip(HEAD + begin, piece[:1] if name != "trailers" else b"x: y\r\n", 0.05)
    failure = await asyncio.wait_for(world.fails(), 20)
    assert failure.code in {"DOWNLOAD_TOO_SLOW", "DOWNLOAD_PROTOCOL"}, failure
