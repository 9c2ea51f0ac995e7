"""Circuit breakers of target hosts: what counts against a host, and that an open one is left alone at no one's cost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config, ProxyPool
from kernel.breakers import Breakers, BreakerState
from kernel.clock import SystemClock
from kernel.objects import ObjectStore
from kernel.redis.clients import RedisClients
from tests.fetching.origin import Origin, answer, redirect, then_close, then_hang, then_reset
from tests.fetching.world import World
from worker_svc.fetch import Fetcher, FetchFailure

FAILING = answer(b"no", status="500 Internal Server Error")


@asynccontextmanager
async def made(config: Config, cooldown_ms: int) -> AsyncIterator[Breakers]:
    config.circuit_breaker.min_samples = 4
    config.circuit_breaker.cooldown_period.FromMilliseconds(cooldown_ms)
    clients = await RedisClients.open(config.redis)
    breakers = Breakers(clients, config.circuit_breaker, SystemClock())
    yield breakers
    await breakers.stop()
    await clients.close()


@pytest.fixture
async def breakers(config: Config) -> AsyncIterator[Breakers]:
    async with made(config, 600_000) as breakers:
        yield breakers


@pytest.fixture
async def quick(config: Config) -> AsyncIterator[Breakers]:
    """With a cooldown of a moment."""
    async with made(config, 100) as breakers:
        yield breakers


@pytest.fixture
async def fetcher(world: World, breakers: Breakers) -> Fetcher:
    return await world.new_fetcher(breakers=breakers)


async def eventually(met: Callable[[], Awaitable[bool]]) -> None:
    end = asyncio.get_running_loop().time() + 30
    while not await met():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.01)


def name_of(origin: Origin) -> str:
    return f"host:127.0.0.1:{origin.port}"


async def standing(breakers: Breakers, origin: Origin) -> BreakerState:
    (state,) = await breakers.states([name_of(origin)])
    return state


async def attempt(world: World, fetcher: Fetcher, path: str, **fields: Any) -> str:
    """The code with which one fetch fails; empty where it does not."""
    try:
        await world.fetch(path, fetcher=fetcher, **fields)
    except FetchFailure as error:
        return error.code
    return ""


async def opened(world: World, fetcher: Fetcher, breakers: Breakers) -> None:
    """Opens the breaker of the origin, and waits until the fetcher knows."""
    world.origin.on("/down", FAILING)
    for _ in range(4):
        await attempt(world, fetcher, "/down")

    async def known() -> bool:
        return not (await breakers.admit(name_of(world.origin))).allowed

    await eventually(known)


@pytest.mark.fault(69)
async def test_an_open_host_is_not_asked_and_no_attempt_is_used(
    world: World, fetcher: Fetcher, breakers: Breakers
) -> None:
    await opened(world, fetcher, breakers)
    seen = len(world.origin.seen)
    world.origin.on("/up", answer(b"well"))
    for path in ("/up", "/down", "/other"):
        failed = await world.fails(path, fetcher=fetcher)
        assert (failed.code, failed.counts) == ("DOWNLOAD_CIRCUIT_OPEN", False)
        assert failed.retry_after is not None
        assert 500 < failed.retry_after <= 900
    assert len(world.origin.seen) == seen
    another = await world.another_origin()
    another.on("/", answer(b"another port is another site"))
    assert (await world.fetch(another.url(), fetcher=fetcher)).size == 28


async def test_the_second_host_of_a_redirect_is_asked_for_too(
    world: World, fetcher: Fetcher, breakers: Breakers
) -> None:
    await opened(world, fetcher, breakers)
    first = await world.another_origin()
    first.on("/", redirect(world.origin.url("/up")))
    seen = len(world.origin.seen)
    failed = await world.fails(first.url(), fetcher=fetcher)
    assert (failed.code, failed.counts) == ("DOWNLOAD_CIRCUIT_OPEN", False)
    assert (len(first.seen), len(world.origin.seen)) == (1, seen)

    async def counted() -> bool:
        return (await standing(breakers, first)).samples == 1

    await eventually(counted)
    assert (await standing(breakers, first)).failures == 0


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (FAILING, "DOWNLOAD_HTTP_500"),
        (answer(status="501 Not Implemented"), "DOWNLOAD_HTTP_501"),
        (then_close(b""), "DOWNLOAD_CONNECTION_RESET"),
        (then_close(answer(b"half", length=8)), "DOWNLOAD_TRUNCATED"),
        (then_reset(answer(b"half", length=8)), "DOWNLOAD_CONNECTION_RESET"),
        (then_hang(answer(b"half", length=8)), "DOWNLOAD_READ_TIMEOUT"),
    ],
    ids=["500", "501", "closed", "truncated", "reset", "silent"],
)
async def test_what_counts_as_a_failure_of_the_host(world: World, breakers: Breakers, script: Any, code: str) -> None:
    world.settings().read_timeout.FromMilliseconds(300)
    fetcher = await world.new_fetcher(breakers=breakers)
    world.origin.on("/", script)
    assert await attempt(world, fetcher, "/") == code
    await _counts(breakers, world.origin, samples=1, failures=1)


async def test_a_host_that_is_not_there_counts(world: World, fetcher: Fetcher, breakers: Breakers) -> None:
    gone = await world.another_origin()
    await gone.__aexit__(None, None, None)
    assert await attempt(world, fetcher, gone.url()) == "DOWNLOAD_CONNECTION_REFUSED"
    await _counts(breakers, gone, samples=1, failures=1)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (answer(b"well"), ""),
        (answer(status="404 Not Found"), "DOWNLOAD_HTTP_404"),
        (answer(status="403 Forbidden"), "DOWNLOAD_HTTP_403"),
        (answer(b"", status="204 No Content", length=None), "DOWNLOAD_NO_CONTENT"),
        (answer(b"x" * 300), "DOWNLOAD_TOO_LARGE"),
    ],
    ids=["200", "404", "403", "204", "too large"],
)
async def test_what_counts_as_a_success_of_the_host(world: World, breakers: Breakers, script: Any, code: str) -> None:
    world.job_type().max_bytes = 200
    fetcher = await world.new_fetcher(breakers=breakers)
    world.origin.on("/", script)
    assert await attempt(world, fetcher, "/") == code
    await _counts(breakers, world.origin, samples=1, failures=0)


async def test_429_our_deadline_and_what_was_never_asked_count_for_nothing(
    world: World, fetcher: Fetcher, breakers: Breakers
) -> None:
    world.origin.on("/busy", answer(status="429 Too Many Requests"))
    world.origin.on("/slow", then_hang(b""))
    assert await attempt(world, fetcher, "/busy") == "DOWNLOAD_HTTP_429"
    world.settings().timeout.FromMilliseconds(200)
    assert await attempt(world, fetcher, "/slow") == "DOWNLOAD_DEADLINE"
    assert await attempt(world, fetcher, "http://10.0.0.1/") == "VALIDATION_BLOCKED_ADDRESS"
    await _nothing_was_counted(breakers)


async def test_faults_of_the_store_do_not_count_against_the_host(
    world: World, breakers: Breakers, config: Config
) -> None:
    broken = Config()
    broken.CopyFrom(config)
    broken.object_store.secret_access_key = "wrong"
    objects = ObjectStore(broken.object_store)
    fetcher = await world.new_fetcher(breakers=breakers, objects=objects)
    world.origin.on("/", answer(b"well"))
    assert (await attempt(world, fetcher, "/")).startswith("STORAGE_")
    await objects.close()
    await _nothing_was_counted(breakers)


async def test_faults_of_a_proxy_do_not_count_against_the_host(world: World, breakers: Breakers) -> None:
    proxy = await world.another_origin()
    proxy.default = then_close(answer(b"half", length=8))
    gone = await world.another_origin()
    await gone.__aexit__(None, None, None)
    world.config.proxies["mine"].CopyFrom(ProxyPool(urls=[proxy.url()]))
    world.config.proxies["dead"].CopyFrom(ProxyPool(urls=[gone.url()]))
    fetcher = await world.new_fetcher(breakers=breakers)
    assert await attempt(world, fetcher, "/", pools=("mine",)) == "DOWNLOAD_TRUNCATED"
    assert await attempt(world, fetcher, "/", pools=("dead",)) == "DOWNLOAD_PROXY"
    await _nothing_was_counted(breakers)
    proxy.default = FAILING
    assert await attempt(world, fetcher, "/", pools=("mine",)) == "DOWNLOAD_HTTP_500"
    await _counts(breakers, world.origin, samples=1, failures=1)


async def _counts(breakers: Breakers, origin: Origin, *, samples: int, failures: int) -> None:
    async def counted() -> bool:
        state = await standing(breakers, origin)
        return (state.samples, state.failures) == (samples, failures)

    await eventually(counted)


async def _nothing_was_counted(breakers: Breakers) -> None:
    """Results are sent in order, so that one which is there tells that none before it is missing."""
    breakers.record("host:last", ok=False)

    async def told() -> bool:
        return bool(await breakers.list())

    await eventually(told)
    assert [state.name for state in await breakers.list()] == ["host:last"]
    assert await breakers._book._run([("DBSIZE",)]) == [2]


async def test_a_canceled_probe_frees_its_place(world: World, quick: Breakers) -> None:
    fetcher = await world.new_fetcher(breakers=quick)
    await opened(world, fetcher, quick)
    world.origin.on("/slow", then_hang(b""))
    world.origin.on("/up", answer(b"well"))
    probing: list[asyncio.Task[str]] = []

    async def asked() -> bool:
        if not probing or probing[-1].done():
            probing.append(asyncio.create_task(attempt(world, fetcher, "/slow")))
        return "/slow" in world.origin.targets

    await eventually(asked)
    assert await attempt(world, fetcher, "/up") == "DOWNLOAD_CIRCUIT_OPEN"
    probing[-1].cancel()
    await asyncio.wait(probing)

    async def well() -> bool:
        return await attempt(world, fetcher, "/up") == ""

    await eventually(well)

    async def closed() -> bool:
        return (await standing(quick, world.origin)).state == "closed"

    await eventually(closed)


async def test_of_many_at_once_only_the_probe_reaches_the_host(world: World, quick: Breakers) -> None:
    fetcher = await world.new_fetcher(breakers=quick)
    await opened(world, fetcher, quick)
    answered = asyncio.Event()

    async def slowly(connection: Any, _: Any) -> None:
        await answered.wait()
        await connection.send(answer(b"well"))

    world.origin.on("/up", slowly)
    fetching: set[asyncio.Task[str]] = set()

    async def probed() -> bool:
        for task in {task for task in fetching if task.done()}:
            assert task.result() == "DOWNLOAD_CIRCUIT_OPEN"
            fetching.discard(task)
        fetching.update(
            asyncio.create_task(attempt(world, fetcher, "/up", resource_id=f"r{n}")) for n in range(40 - len(fetching))
        )
        await asyncio.sleep(0)
        return "/up" in world.origin.targets

    await eventually(probed)
    for _ in range(10):
        assert await attempt(world, fetcher, "/up") == "DOWNLOAD_CIRCUIT_OPEN"
    assert world.origin.targets.count("/up") == 1
    answered.set()
    codes = await asyncio.gather(*fetching)
    assert codes.count("") == 1
