"""Contents that are cut and continued, and servers that continue them wrongly."""

import gzip
import hashlib
import random

from tests.fetching.cases import case
from tests.fetching.origin import Connection, Request, Script, answer, chunked, then_close
from tests.fetching.world import World

OLD = random.Random(27).randbytes(20 * 1024 * 1024)
NEW = random.Random(28).randbytes(3_000_000)
SMALL = OLD[:400_000]


def cut(data: bytes, etag: str, at: float = 0.6) -> Script:
    return then_close(answer(data[: int(len(data) * at)], f"ETag: {etag}", "Accept-Ranges: bytes", length=len(data)))


def ranged(data: bytes, etag: str) -> Script:
    """A server that honours Range and If-Range."""

    async def script(connection: Connection, request: Request) -> None:
        asked = request.get("range")
        if asked is None or request.get("if-range") != etag:
            await connection.send(answer(data, f"ETag: {etag}", "Accept-Ranges: bytes"))
            return
        start = int(asked.removeprefix("bytes=").rstrip("-"))
        place = f"Content-Range: bytes {start}-{len(data) - 1}/{len(data)}"
        await connection.send(answer(data[start:], place, f"ETag: {etag}", status="206 Partial Content"))

    return script


@case("FC-027")
async def continued_where_it_was_cut(world: World) -> None:
    world.origin.on("/", cut(OLD, '"v1"'), ranged(OLD, '"v1"'))
    fetched = await world.fetch()
    assert fetched.sha256 == hashlib.sha256(OLD).hexdigest()
    assert world.body() == OLD
    assert "resumed" in fetched.flags
    second = world.origin.seen[1]
    start = int(str(second.get("range")).removeprefix("bytes=").rstrip("-"))
    assert 0 < start <= len(OLD) * 6 // 10
    assert second.get("if-range") == '"v1"'
    assert fetched.wire_length == len(OLD)
    assert world.open_uploads() == []


@case("FC-028")
async def changed_between_the_tries(world: World) -> None:
    world.origin.on("/", cut(SMALL, '"v1"'), ranged(NEW, '"v2"'))
    fetched = await world.fetch()
    assert world.body() == NEW
    assert fetched.sha256 == hashlib.sha256(NEW).hexdigest()
    assert world.origin.seen[-1].get("range") is None

    # A server that ignores If-Range and sends the tail of another version.
    tail = answer(
        NEW[240_000:400_000], "Content-Range: bytes 240000-399999/400000", 'ETag: "v2"', status="206 Partial Content"
    )
    world.origin.on("/spliced", cut(SMALL, '"v1"'), tail, answer(NEW, 'ETag: "v2"'))
    await world.fetch("/spliced", resource_id="r2")
    assert world.body("r2") == NEW


@case("FC-029")
async def range_ignored(world: World) -> None:
    whole = answer(SMALL, 'ETag: "v1"', "Accept-Ranges: bytes")
    world.origin.on("/", cut(SMALL, '"v1"'), whole)
    fetched = await world.fetch()
    assert fetched.size == len(SMALL)
    assert world.body() == SMALL

    # A server that sends only the rest, but with status 200 (modelscope_hub#50).
    world.origin.on("/slice", cut(SMALL, '"v1"'), answer(SMALL[240_000:], 'ETag: "v1"'), whole)
    await world.fetch("/slice", resource_id="r2")
    assert world.body("r2") == SMALL

    # A 206 that begins earlier than asked (httrack#428).
    early = answer(
        SMALL[200_000:], "Content-Range: bytes 200000-399999/400000", 'ETag: "v1"', status="206 Partial Content"
    )
    world.origin.on("/early", cut(SMALL, '"v1"'), early, whole)
    await world.fetch("/early", resource_id="r3")
    assert world.body("r3") == SMALL


def unsatisfied(total: int, *headers: str) -> bytes:
    return answer(b"", f"Content-Range: bytes */{total}", *headers, status="416 Range Not Satisfiable")


@case("FC-032")
async def nothing_left_to_ask_for(world: World) -> None:
    head = ("Transfer-Encoding: chunked", 'ETag: "v1"', "Accept-Ranges: bytes")
    endless = then_close(answer(chunked(SMALL, end=b""), *head, length=None))
    world.origin.on("/", endless, unsatisfied(len(SMALL), 'ETag: "v1"'))
    await world.fetch()
    assert world.body() == SMALL
    assert len(world.origin.seen) == 2

    world.origin.seen.clear()
    world.origin.on("/changed", endless, unsatisfied(len(SMALL), 'ETag: "v2"'), answer(NEW, 'ETag: "v2"'))
    await world.fetch("/changed", resource_id="r2")
    assert world.body("r2") == NEW

    world.origin.on("/for-ever", endless, unsatisfied(len(SMALL)))
    outcome = await world.outcome("/for-ever", tries=3, resource_id="r3")
    assert outcome.fetched is None
    assert len(world.origin.targets) < 12


@case("FC-034")
async def part_that_nobody_asked_for(world: World) -> None:
    part = answer(bytes(100), "Content-Range: bytes 0-99/200", status="206 Partial Content")
    world.origin.on("/", part)
    outcome = await world.outcome()
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_UNEXPECTED_PARTIAL"]
    world.origin.on("/bare", answer(bytes(100), status="206 Partial Content"))
    assert (await world.fails("/bare")).code == "DOWNLOAD_UNEXPECTED_PARTIAL"


@case("FC-036")
async def coded_and_weakly_tagged(world: World) -> None:
    packed = gzip.compress(SMALL)
    head = ("Content-Encoding: gzip", "Accept-Ranges: bytes")
    half = packed[: len(packed) // 2]
    for number, etag in enumerate(('W/"v1"', '"v1"')):
        path = f"/{number}"
        world.origin.seen.clear()
        first = then_close(answer(half, *head, f"ETag: {etag}", length=len(packed)))
        world.origin.on(path, first, answer(packed, *head, f"ETag: {etag}"))
        outcome = await world.outcome(path, resource_id=path[1:])
        assert outcome.attempts == 2
        assert world.body(path[1:]) == packed
        assert [request.get("range") for request in world.origin.seen] == [None, None]
    world.origin.on("/weak", then_close(answer(SMALL[:99], 'ETag: W/"v1"', "Accept-Ranges: bytes", length=400_000)))
    assert (await world.fails("/weak")).code == "DOWNLOAD_TRUNCATED"
