"""Statuses, `Retry-After`, and answers that are no content."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from kernel.breakers.hostgate import RedisHostGates
from kernel.clock import SystemClock
from kernel.errors import is_retryable
from kernel.redis.clients import RedisClients
from tests.fetching.cases import case
from tests.fetching.origin import Connection, Request, answer
from tests.fetching.world import World
from worker_svc.fetch import Fetched, FetchFailure

OK = answer(b"fine")


@case("FC-037")
async def fleet_waits(world: World) -> None:
    """Three workers that share nothing but Redis."""
    redis = await RedisClients.open(world.config.redis)
    world.stack.push_async_callback(redis.close)
    workers = [await world.new_fetcher(RedisHostGates(redis.commands, SystemClock())) for _ in range(3)]
    times: list[float] = []

    async def limited(connection: Connection, _: Request) -> None:
        times.append(time.monotonic())
        busy = answer(b"", "Retry-After: 2", status="429 Too Many Requests")
        await connection.send(busy if len(times) == 1 else OK)

    world.origin.on("/", limited)
    first = await world.fails(fetcher=workers[0])
    assert first.code == "DOWNLOAD_HTTP_429"
    assert first.retry_after == 2
    assert first.counts

    async def patient(number: int) -> Fetched:
        while True:
            try:
                return await world.fetch(fetcher=workers[number], resource_id=f"r{number}")
            except FetchFailure as error:
                deferrals.append(error)
                await asyncio.sleep(error.retry_after or 0.1)

    deferrals: list[FetchFailure] = []
    await asyncio.gather(*map(patient, range(3)))
    assert len(deferrals) >= 3
    assert all(not deferral.counts and 0 < (deferral.retry_after or 0) <= 2 for deferral in deferrals)
    assert times[1] - times[0] >= 2.0
    assert [world.body(f"r{number}") for number in range(3)] == [b"fine"] * 3


@case("FC-038")
async def date_ahead(world: World) -> None:
    def busy(*more: str) -> bytes:
        ahead = datetime.now(UTC) + timedelta(seconds=3)
        date = ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")
        return answer(b"", f"Retry-After: {date}", *more, status="503 Service Unavailable")

    world.origin.on("/", busy(), OK)
    began = time.monotonic()
    failure = await world.fails()
    assert failure.retry_after is not None
    assert 2.5 <= failure.retry_after <= 6
    deferred = await world.fails()
    assert not deferred.counts
    await asyncio.sleep(failure.retry_after)
    await world.fetch()
    assert 2.5 <= time.monotonic() - began <= 6
    assert len(world.origin.seen) == 2


@case("FC-039")
async def absurd_wait(world: World) -> None:
    world.settings().max_retry_after.FromSeconds(60)
    world.origin.on("/", answer(b"", "Retry-After: 9999999999", status="429 Too Many Requests"))
    failure = await world.fails()
    assert failure.retry_after == 60
    assert failure.facts["retry_after_asked"] == 9999999999
    began = time.monotonic()
    deferred = await world.fails()
    assert not deferred.counts
    assert deferred.retry_after == pytest.approx(60, abs=2)
    assert time.monotonic() - began < 1, "a slot is not held"
    assert len(world.origin.seen) == 1


@case("FC-042")
async def errors_then_good(world: World) -> None:
    bad = [answer(b"", status=status) for status in ("500 Internal Server Error", "502 Bad Gateway")]
    world.origin.on("/", *bad, OK)
    outcome = await world.outcome()
    assert outcome.attempts == 3
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_HTTP_500", "DOWNLOAD_HTTP_502"]
    assert world.body() == b"fine"


@case("FC-043")
async def refusals(world: World) -> None:
    for status in (404, 410, 403, 401, 451):
        world.origin.seen.clear()
        world.origin.on("/", answer(b"no", status=f"{status} No"))
        outcome = await world.outcome()
        assert [failure.code for failure in outcome.failures] == [f"DOWNLOAD_HTTP_{status}"]
        assert len(world.origin.seen) == 1
        assert ("legal" in outcome.failures[0].facts) == (status == 451)


@case("FC-044")
async def no_content(world: World) -> None:
    async def late_body(connection: Connection, _: Request) -> None:
        await connection.send(answer(b"", status="204 No Content", length=5))
        await asyncio.sleep(0.05)
        await connection.send(b"HTTP/1")

    for status, script in (
        ("204", answer(b"hello", status="204 No Content")),
        ("204 late", late_body),
        ("205", answer(b"hello", status="205 Reset Content")),
        ("304", answer(b"", status="304 Not Modified", length=None)),
    ):
        world.origin.on("/", script)
        outcome = await world.outcome()
        assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_NO_CONTENT"], status
        world.origin.on("/next", OK)
        connections = world.origin.connections
        await world.fetch("/next", resource_id="next")
        assert world.body("next") == b"fine"
        assert world.origin.connections == connections + 1, "a dirty connection is not used again"
        await asyncio.sleep(0.1)


@case("FC-045")
async def interim_answers(world: World) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
    world.origin.on("/103", hints + OK)
    await world.fetch("/103")
    assert world.body() == b"fine"
    world.origin.on("/102", b"HTTP/1.1 102 Processing\r\n\r\n" * 5000 + OK)
    await asyncio.wait_for(world.fetch("/102", resource_id="r2"), 20)
    assert world.body("r2") == b"fine"

    async def for_ever(connection: Connection, _: Request) -> None:
        while not connection.writer.transport.is_closing():
            await connection.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)

    world.origin.on("/for-ever", for_ever)
    failure = await asyncio.wait_for(world.fails("/for-ever", resource_id="r3"), 20)
    assert failure.code == "DOWNLOAD_HEADERS_TOO_LARGE"
    world.origin.on("/101", answer(b"", "Upgrade: h2c", "Connection: upgrade", status="101 Switching", length=None))
    assert (await world.fails("/101", resource_id="r4")).code == "DOWNLOAD_PROTOCOL"


@case("FC-047")
async def login_page(world: World) -> None:
    page = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"
    world.origin.on("/", answer(page, "Content-Type: image/jpeg"))
    outcome = await world.outcome(mime="image/jpeg")
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TYPE_MISMATCH"]


@case("FC-049")
async def nobody_listens(world: World) -> None:
    gone = await world.another_origin()
    port = gone.port
    await gone.__aexit__()
    refused = await world.fails(f"http://127.0.0.1:{port}/")
    assert refused.code == "DOWNLOAD_CONNECTION_REFUSED"
    assert is_retryable(refused.code)
    unknown = await world.fails("http://nowhere.invalid/")
    assert unknown.code == "DOWNLOAD_DNS"
    assert is_retryable(unknown.code)
