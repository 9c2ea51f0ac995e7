"""Servers that take their time, never end, or hang up just then."""

import time

from kernel.errors import is_retryable
from tests.fetching.cases import case
from tests.fetching.origin import Connection, Request, answer, drip, then_hang
from tests.fetching.world import World

MIB = 1024 * 1024


@case("FC-093")
async def one_byte_a_second(world: World) -> None:
    world.settings().low_speed_bytes = 100
    world.settings().low_speed_window.FromMilliseconds(1500)
    world.origin.on("/", drip(answer(b"", length=5000), b"x", 0.5))
    began = time.monotonic()
    failure = await world.fails()
    assert failure.code == "DOWNLOAD_TOO_SLOW"
    assert is_retryable(failure.code)
    assert 1.4 < time.monotonic() - began < 4


@case("FC-095")
async def silence_in_the_body(world: World) -> None:
    world.settings().read_timeout.FromMilliseconds(500)
    world.settings().per_host = 1
    world.origin.on("/", then_hang(answer(bytes(100), length=1000)))
    failure = await world.fails()
    assert failure.code == "DOWNLOAD_READ_TIMEOUT"
    assert failure.facts["bytes_seen"] == 100
    assert failure.facts["bytes_expected"] == 1000
    world.origin.on("/next", answer(b"fine"))
    await world.fetch("/next")
    world.origin.on("/silent", then_hang(b""))
    assert (await world.fails("/silent", resource_id="r2")).code == "DOWNLOAD_READ_TIMEOUT"


@case("FC-096")
async def endless(world: World) -> None:
    world.job_type().max_bytes = 10 * MIB
    world.origin.on("/", drip(answer(b"", length=None), bytes(MIB // 4), 0))
    outcome = await world.outcome()
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TOO_LARGE"]
    assert world.open_uploads() == []
    world.origin.on("/declared", answer(b"x", length=11 * MIB))
    assert (await world.fails("/declared")).code == "DOWNLOAD_TOO_LARGE"


@case("FC-098")
async def stale_connections(world: World) -> None:
    served = 0

    async def hang_up_on_reuse(connection: Connection, _: Request) -> None:
        """Serves one request on a connection and closes it as soon as the next one has come."""
        nonlocal served
        served += 1
        await connection.send(answer(b"%d" % served))
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.close()

    world.origin.default = hang_up_on_reuse
    for number in range(100):
        fetched = await world.fetch(f"/{number}", resource_id=str(number % 5))
        assert fetched.size > 0
    assert served == 100
    assert world.body("4") == b"100"
