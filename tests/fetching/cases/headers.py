"""Header blocks: large, odd, hostile, and what of them is kept."""

import asyncio
import resource

from tests.fetching.cases import case
from tests.fetching.origin import Connection, Request, answer
from tests.fetching.world import World

DATA = b"some plain data"


@case("FC-085")
async def one_large_field(world: World) -> None:
    world.origin.on("/", answer(DATA, f"Content-Security-Policy: {'a' * 16_000}"))
    await world.fetch()
    assert world.body() == DATA
    world.origin.on("/64k", answer(DATA, f"X: {'a' * 70_000}"))
    assert (await world.fails("/64k", resource_id="r2")).code == "DOWNLOAD_HEADERS_TOO_LARGE"


@case("FC-086")
async def many_fields(world: World) -> None:
    world.origin.on("/2000", answer(DATA, *(f"X-{number}: y" for number in range(2000))))
    await world.fetch("/2000")
    assert world.body() == DATA

    async def for_ever(connection: Connection, _: Request) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\n")
        number = 0
        while not connection.writer.transport.is_closing():
            await connection.send(b"".join(b"X-%d: %s\r\n" % (number + n, b"y" * 500) for n in range(500)))
            number += 500

    world.origin.on("/for-ever", for_ever)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = await asyncio.wait_for(world.fails("/for-ever", resource_id="r2"), 10)
    assert failure.code == "DOWNLOAD_HEADERS_TOO_LARGE"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


@case("FC-088")
async def not_ascii(world: World) -> None:
    disposition = b'Content-Disposition: attachment; filename="caf\xe9.txt"'
    world.origin.on("/", answer(DATA, disposition, "X-Name: 中".encode()))
    await world.fetch(tags={"name": "中", "Größe": "5"})
    assert world.body() == DATA
    stored = world.metadata()["Metadata"]
    assert all(f"{name}{value}".isascii() for name, value in stored.items())
    assert "caf%C3%A9.txt" in stored["received-disposition"]
    assert stored["name"] == "%E4%B8%AD"


@case("FC-089")
async def climbing_names(world: World) -> None:
    for number, name in enumerate(("../../etc/passwd", "a\\\\..\\\\b")):
        world.origin.on("/", answer(DATA, f'Content-Disposition: attachment; filename="{name}"'))
        fetched = await world.fetch(resource_id=f"../{number}")
        assert fetched.key.startswith("resources/default/job-1/")
        assert ".." not in fetched.key.split("/")
        assert world.stored(fetched.key) == DATA
    assert (await world.fetch(resource_id="..")).key == "resources/default/job-1/%2E%2E"


@case("FC-091")
async def content_types(world: World) -> None:
    world.origin.on("/twice", answer(DATA, "Content-Type: text/csv; charset=utf-8", "Content-Type: a/b"))
    world.origin.on("/none", answer(b"\x89PNG\r\n\x1a\n" + DATA))
    world.origin.on("/odd", answer(DATA, "Content-Type: ;;"))
    assert (await world.fetch("/twice")).content_type == "text/csv; charset=utf-8"
    assert world.metadata()["ContentType"] == "text/csv; charset=utf-8"
    assert (await world.fetch("/none")).content_type == "image/png"
    assert (await world.fetch("/odd", mime="text/plain")).content_type == "text/plain"
    assert (await world.fetch("/odd")).content_type == "application/octet-stream"
    assert world.metadata()["ContentType"] == "application/octet-stream"
    assert world.metadata()["Metadata"]["received-content-type"] == ";;"


@case("FC-092")
async def opted_out(world: World) -> None:
    world.origin.on("/noai", answer(DATA, "X-Robots-Tag: img2dataset: noai"))
    world.origin.on("/noindex", answer(DATA, "X-Robots-Tag: nofollow, NoIndex"))
    world.origin.on("/fine", answer(DATA, "X-Robots-Tag: nofollow"))
    await world.fetch("/noai")
    world.settings().honour_robots_tag = True
    strict = await world.new_fetcher()
    for path in ("/noai", "/noindex"):
        outcome = await world.outcome(path, fetcher=strict, resource_id="r2")
        assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_OPTED_OUT"]
    await world.fetch("/fine", fetcher=strict, resource_id="r3")
