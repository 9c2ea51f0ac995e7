"""Answers that are mutated at random: a fetch is stored or fails with a code, in time, and nothing else happens."""

import asyncio
import gzip
import random
import zlib

import pytest

from tests.examples import most
from tests.fetching.cases.proxy import pool
from tests.fetching.origin import Answer, Connection, Request, Script, answer, chunked, redirect
from tests.fetching.world import World
from worker_svc.fetch import FetchFailure

TEXT = b"a line of text that is long enough to be packed\n" * 60
SEEDS = (
    answer(TEXT, "Content-Type: text/plain", 'ETag: "v1"', "Accept-Ranges: bytes"),
    answer(chunked(TEXT[:700], TEXT[700:]), "Transfer-Encoding: chunked", length=None),
    answer(gzip.compress(TEXT) + b"tail", "Content-Encoding: gzip"),
    answer(zlib.compress(TEXT), "Content-Encoding: deflate", "Via: 1.1 x", "Proxy-Status: p; error=x"),
    answer(TEXT[500:], f"Content-Range: bytes 500-{len(TEXT) - 1}/{len(TEXT)}", 'ETag: "v1"', status="206 Part"),
    answer(b"", "Retry-After: 0", "Content-Type: a/b", status="503 Later"),
    redirect("/b?x=1#y"),
    b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + answer(TEXT, "X-Robots-Tag: noai"),
    b"HTTP/1.0 200 OK\r\n\r\n" + TEXT,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(len(out) if rng.random() < 0.5 else min(len(out), 250))
        kind = rng.randrange(5)
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            out[at:at] = rng.choice((b"\r\n", b"\n", b"\0", b"\x1b", b"\xff\xfe", b"0", b";", b":", b"9" * 30, b" "))
        elif kind == 2:
            del out[at : at + rng.choice((1, 2, 40))]
        elif kind == 3:
            out[at:at] = out[: rng.randrange(200)]
        else:
            del out[at:]
        if not out:
            return b"\r\n"
    return bytes(out)


def hostile(rng: random.Random) -> Script:
    async def script(connection: Connection, _: Request) -> None:
        data = mutated(rng.choice(SEEDS), rng)
        cut = rng.randrange(len(data)) if rng.random() < 0.3 else len(data)
        await connection.send(data[:cut])
        await asyncio.sleep(0)
        await connection.send(data[cut:])
        if rng.random() < 0.5:
            connection.reset() if rng.random() < 0.3 else connection.writer.close()

    return script


@pytest.mark.parametrize("by", ["direct", "proxies"])
async def test_whatever_a_server_sends_a_fetch_ends_with_an_object_or_a_code(world: World, by: str) -> None:
    settings = world.settings()
    settings.read_timeout.FromMilliseconds(300)
    settings.connect_timeout.FromMilliseconds(300)
    settings.per_host = 64
    rng = random.Random(14)
    default: Answer = hostile(rng)
    world.origin.default = default
    pools: tuple[str, ...] = ()
    if by == "proxies":
        proxies = [await world.another_origin(default=default) for _ in range(3)]
        pools = tuple(pool(world, f"p{number}", proxy.port) for number, proxy in enumerate(proxies))
    fetcher = await world.new_fetcher()
    codes: set[str] = set()

    async def one(number: int) -> None:
        try:
            async with asyncio.timeout(30):
                await world.fetch(f"/{number}", fetcher=fetcher, resource_id=str(number % 40), pools=pools)
        except FetchFailure as error:
            codes.add(error.code)

    numbers = iter(range(most(300)))

    async def some() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(some() for _ in range(16)))
    assert len(codes) > 3
    assert all(code.startswith(("DOWNLOAD_", "VALIDATION_")) for code in codes)
    assert world.open_uploads() == []
    assert fetcher._workshop.budget.free == fetcher._workshop.budget._total
    assert fetcher._slots._sites == {}
