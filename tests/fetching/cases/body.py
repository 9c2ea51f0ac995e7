"""Bodies that end wrongly, or whose length is told wrongly."""

import random

from tests.fetching.cases import case
from tests.fetching.origin import answer, chunked, then_close, then_reset
from tests.fetching.world import World

DATA = bytes(range(100))
MIB = 1024 * 1024


@case("FC-001")
async def cut_then_whole(world: World) -> None:
    whole = bytes(150)
    world.origin.on("/", then_close(answer(whole[:100], length=150)), answer(whole))
    first = await world.fails()
    assert first.code == "DOWNLOAD_TRUNCATED"
    assert first.counts
    fetched = await world.fetch()
    assert fetched.size == 150
    assert world.body() == whole


@case("FC-002")
async def reset_in_a_large_body(world: World) -> None:
    data = bytes(10 * MIB)
    world.origin.on("/", then_reset(answer(data, length=50 * MIB)))
    outcome = await world.outcome(tries=2)
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_CONNECTION_RESET"] * 2
    assert world.open_uploads() == []
    assert world.body() is None


@case("FC-004")
async def no_last_chunk(world: World) -> None:
    world.origin.on("/", then_close(answer(chunked(DATA, end=b""), "Transfer-Encoding: chunked", length=None)))
    outcome = await world.outcome(tries=2)
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TRUNCATED"] * 2


@case("FC-007")
async def extension_and_trailer(world: World) -> None:
    body = b'64;a=b;c="d"\r\n' + DATA + b"\r\n0\r\nX-Trailer: 1\r\n\r\n"
    world.origin.on("/", answer(body, "Transfer-Encoding: chunked", length=None))
    fetched = await world.fetch()
    assert fetched.length_known
    assert world.body() == DATA


@case("FC-009")
async def length_and_chunked(world: World) -> None:
    world.origin.on("/", answer(chunked(DATA), "Transfer-Encoding: chunked", length=20))
    assert (await world.fails()).code == "DOWNLOAD_PROTOCOL"


@case("FC-010")
async def equal_lengths(world: World) -> None:
    world.origin.on("/", answer(DATA, "Content-Length: 100"))
    outcome = await world.outcome()
    assert outcome.attempts == 1
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_PROTOCOL"]


@case("FC-011")
async def unequal_lengths(world: World) -> None:
    world.origin.on("/", answer(DATA, "Content-Length: 50"))
    outcome = await world.outcome()
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_PROTOCOL"]


@case("FC-012")
async def lengths_that_are_none(world: World) -> None:
    for length in ("-1", "abc", "1\x002", "+100", "0x64", "99999999999999999999999999"):
        world.origin.on("/", then_close(answer(DATA, length=length)))
        assert (await world.fails()).code == "DOWNLOAD_PROTOCOL", length
    world.origin.on("/", answer(DATA))
    assert (await world.fetch()).size == 100


@case("FC-013")
async def ended_by_the_connection(world: World) -> None:
    world.origin.on("/", then_close(b"HTTP/1.0 200 OK\r\n\r\n" + DATA))
    fetched = await world.fetch()
    assert not fetched.length_known
    assert world.body() == DATA
    assert world.metadata()["Metadata"]["length-known"] == "false"


@case("FC-014")
async def no_bytes(world: World) -> None:
    world.origin.on("/", answer(b""))
    assert (await world.fails()).code == "DOWNLOAD_EMPTY_BODY"
    world.settings().allow_empty = True
    fetched = await world.fetch(fetcher=await world.new_fetcher())
    assert fetched.flags == ("empty",)
    assert world.body() == b""


@case("FC-015")
async def always_cut(world: World) -> None:
    data = random.Random(15).randbytes(300 * 1024)
    world.origin.on("/", then_close(answer(data[: len(data) * 6 // 10], length=len(data))))
    outcome = await world.outcome(tries=3)
    assert outcome.attempts == 3
    facts = outcome.failures[-1].facts
    assert facts["bytes_expected"] == len(data)
    assert facts["bytes_seen"] == len(data) * 6 // 10
    assert world.body() is None
