"""Proxies: what they are asked for, and what their faults do to the fetch, to the next proxy and to the origin."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import trustme
from aiohttp.abc import ResolveResult

from kernel.breakers import Admission, Breakers
from kernel.breakers.hostgate import MemoryHostGates
from kernel.clock import SystemClock
from kernel.redis.clients import RedisClients
from tests.fetching.cases.proxy import forward, pool
from tests.fetching.cases.tls import client_context, server_context
from tests.fetching.origin import (
    Answer,
    Connection,
    Origin,
    Request,
    answer,
    chunked,
    redirect,
    then_close,
    then_hang,
    then_reset,
)
from tests.fetching.world import FixedNames, World

NAME = "target.example"
BODY = bytes(range(256)) * 40
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 5000


@dataclass
class Scene:
    """An origin behind proxies, in HTTP or behind CONNECT, and the circuit breakers of hosts."""

    world: World
    target: Origin
    breakers: "Told"
    gates: MemoryHostGates
    tunnel: bool

    @property
    def url(self) -> str:
        return self.target.url("/", NAME)

    async def proxy(self, name: str, *answers: Answer) -> Origin:
        proxy = await self.world.another_origin(default=forward)
        if answers:
            proxy.default = in_turn(*answers)
        pool(self.world, name, proxy.port)
        return proxy

    async def untouched(self) -> bool:
        """Whether nothing was told about the origin."""
        return self.breakers.results == [] and await self.gates.until(f"{NAME}:{self.target.port}") == 0


class Told(Breakers):
    """Breakers that note what they are told."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.results: list[bool] = []

    def record(self, name: str, ok: bool, admission: Admission | None = None) -> None:
        self.results.append(ok)
        super().record(name, ok, admission)


def in_turn(*answers: Answer) -> Answer:
    """Each answer once, then the last one again."""
    left = list(answers)

    async def script(connection: Connection, request: Request) -> None:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, bytes):
            await connection.send(found)
        else:
            await found(connection, request)

    return script


@pytest.fixture(params=["http", "connect"])
async def scene(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Scene]:
    tunnel = request.param == "connect"
    authority = trustme.CA()
    world.ssl_context = client_context(authority)
    world.names = FixedNames({NAME: "127.0.0.1", "127.0.0.1": "127.0.0.1", "inner.example": "127.0.0.9"})
    tls = server_context(authority, NAME) if tunnel else None
    target = await world.another_origin(tls=tls, default=then_close(answer(BODY)))
    clients = await RedisClients.open(world.config.redis)
    world.config.circuit_breaker.min_samples = 1
    breakers = Told(clients, world.config.circuit_breaker, SystemClock())
    gates = MemoryHostGates(SystemClock())
    world.gates = gates
    yield Scene(world, target, breakers, gates, tunnel)
    await breakers.stop()
    await clients.close()


def refusal(status: int) -> bytes:
    return answer(b"by the proxy", "Retry-After: 60", status=f"{status} No")


@pytest.mark.parametrize("status", [403, 407, 502, 503, 504])
async def test_the_next_pool_is_asked_when_a_proxy_refuses(scene: Scene, status: int) -> None:
    bad, good = await scene.proxy("bad", refusal(status)), await scene.proxy("good")
    fetcher = await scene.world.new_fetcher(breakers=scene.breakers)
    fetched = await scene.world.fetch(scene.url, pools=("bad", "good"), fetcher=fetcher)
    assert fetched.proxy == f"127.0.0.1:{good.port}"
    assert scene.world.body() == BODY
    assert scene.breakers.results == [True]
    assert len(bad.seen) == 1
    # The one that was at fault rests.
    await scene.world.fetch(scene.url, pools=("bad", "good"), fetcher=fetcher, resource_id="r2")
    assert len(bad.seen) == 1


@pytest.mark.parametrize("status", [403, 407, 502, 503, 504])
async def test_what_a_proxy_answers_is_not_charged_to_the_origin(scene: Scene, status: int) -> None:
    await scene.proxy("bad", refusal(status))
    fetcher = await scene.world.new_fetcher(breakers=scene.breakers)
    for _ in range(3):
        failure = await scene.world.fails(scene.url, pools=("bad",), fetcher=fetcher)
        assert failure.counts
        assert failure.facts["fault"] in {"proxy", "unclear"}
    assert await scene.untouched()
    assert scene.target.seen == []


@pytest.mark.parametrize("broken", [then_close(CUT), then_reset(CUT)], ids=["ended", "reset"])
async def test_the_next_pool_is_asked_when_a_proxy_breaks_a_body(scene: Scene, broken: Answer) -> None:
    if scene.tunnel:
        broken = cut_tunnel
    bad, good = await scene.proxy("bad", broken), await scene.proxy("good")
    fetcher = await scene.world.new_fetcher(breakers=scene.breakers)
    fetched = await scene.world.fetch(scene.url, pools=("bad", "good"), fetcher=fetcher)
    assert fetched.proxy == f"127.0.0.1:{good.port}"
    assert scene.world.body() == BODY
    assert len(bad.seen) == 1
    failure = await scene.world.fails(scene.url, pools=("bad",), fetcher=fetcher, resource_id="r2")
    assert failure.facts["fault"] in {"proxy", "unclear"}


async def cut_tunnel(connection: Connection, request: Request) -> None:
    """A tunnel that ends within the body."""

    class Short:
        """Lets so many bytes through to the client."""

        def __init__(self) -> None:
            self.left = 6000

        def write(self, data: bytes) -> None:
            connection.writer.write(data[: self.left])
            self.left -= len(data)
            if self.left <= 0:
                connection.writer.close()

        async def drain(self) -> None:
            if self.left <= 0:
                raise ConnectionError
            await connection.writer.drain()

        def close(self) -> None:
            connection.writer.close()

    await forward(Connection(connection.reader, Short()), request)  # type: ignore[arg-type]  # all that `forward` uses


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n",
        answer(b"this is no gzip" * 9, "Content-Encoding: gzip") + chunked(b""),
        then_close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"),
        then_close(b"HTTP/1.1 200"),
        b"nonsense\r\n\r\n",
    ],
    ids=["chunk", "surplus", "cut-chunks", "cut-head", "no-http"],
)
async def test_the_next_pool_is_asked_when_a_proxy_speaks_no_http(world: World, broken: Answer) -> None:
    bad = await world.another_origin(default=broken)
    good = await world.another_origin(default=forward)
    world.origin.default = then_close(answer(BODY))
    pools = (pool(world, "bad", bad.port), pool(world, "good", good.port))
    outcome = await world.outcome(pools=pools, hint="")
    assert outcome.fetched is not None


async def test_what_every_proxy_meets_is_what_the_origin_said(world: World) -> None:
    world.origin.default = then_close(answer(b"", status="403 Forbidden"))
    proxies = [await world.another_origin(default=forward) for _ in range(5)]
    pools = [pool(world, f"p{n}", proxy.port) for n, proxy in enumerate(proxies)]
    fetcher = await world.new_fetcher()
    failure = await world.fails(pools=tuple(pools), fetcher=fetcher)
    assert failure.code == "DOWNLOAD_HTTP_403"
    assert failure.facts["http_status"] == 403
    assert len(world.origin.seen) == 3, "not every proxy there is"
    # None of them is known to be at fault, so the first is still the first.
    world.origin.default = then_close(answer(BODY))
    fetched = await world.fetch(pools=tuple(pools), fetcher=fetcher)
    assert fetched.proxy == f"127.0.0.1:{proxies[0].port}"


async def test_a_refusal_that_not_all_proxies_met_is_tried_again(world: World) -> None:
    gone = await world.another_origin()
    await gone.__aexit__()
    refusing = await world.another_origin(default=answer(b"", status="403 Forbidden"))
    pools = (pool(world, "gone", gone.port), pool(world, "refusing", refusing.port))
    failure = await world.fails(pools=pools)
    assert failure.code == "DOWNLOAD_PROXY"
    assert failure.facts["proxies_tried"] == 2


async def test_the_rest_of_a_pool_comes_after_the_other_pools(world: World) -> None:
    bad = [await world.another_origin(default=answer(b"", status="502 Bad Gateway")) for _ in range(6)]
    good = await world.another_origin(default=forward)
    world.origin.default = then_close(answer(BODY))
    pools = (pool(world, "bad", *(proxy.port for proxy in bad)), pool(world, "good", good.port))
    fetched = await world.fetch(pools=pools)
    assert fetched.proxy == f"127.0.0.1:{good.port}"


async def test_statuses_that_only_an_origin_makes_are_its_own(scene: Scene) -> None:
    await scene.proxy("first")
    second = await scene.proxy("second")
    scene.target.default = answer(b"", status="500 Oops")
    fetcher = await scene.world.new_fetcher(breakers=scene.breakers)
    failure = await scene.world.fails(scene.url, pools=("first", "second"), fetcher=fetcher)
    assert failure.code == "DOWNLOAD_HTTP_500"
    assert failure.facts["fault"] == "origin"
    assert second.seen == []
    assert not await scene.untouched()


async def test_a_proxy_is_given_an_address_that_was_checked_and_the_origin_its_name(scene: Scene) -> None:
    proxy = await scene.proxy("p")
    await scene.world.fetch(scene.url, pools=("p",))
    place = f"127.0.0.1:{scene.target.port}"
    assert proxy.targets == [place if scene.tunnel else f"http://{place}/"]
    assert [request.get("host") for request in scene.target.seen] == [f"{NAME}:{scene.target.port}"]


async def test_names_that_share_an_address_share_no_tunnel(world: World) -> None:
    authority = trustme.CA()
    world.ssl_context = client_context(authority)
    world.names = FixedNames({NAME: "127.0.0.1", "other.example": "127.0.0.1", "127.0.0.1": "127.0.0.1"})
    target = await world.another_origin(tls=server_context(authority, NAME), default=answer(BODY))
    proxy = await world.another_origin(default=forward)
    pools = (pool(world, "p", proxy.port),)
    await world.fetch(target.url("/", NAME), pools=pools)
    failure = await world.fails(target.url("/", "other.example"), pools=pools, resource_id="r2")
    assert failure.code == "DOWNLOAD_TLS_CERTIFICATE"
    assert len(target.seen) == 1


async def test_a_name_that_turns_private_after_the_check_is_not_dialled(scene: Scene) -> None:
    """DNS rebinding: the proxy never sees the name, so it cannot resolve it anew."""
    proxy = await scene.proxy("p")
    names = Turning(scene.world.names)
    scene.world.names = names
    await scene.world.fetch(scene.url, pools=("p",))
    assert names.asked == [NAME]
    assert NAME not in " ".join(proxy.targets)


class Turning(FixedNames):
    """Tells another address each time."""

    def __init__(self, names: FixedNames | None) -> None:
        super().__init__(dict(names.names if names else {}))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        self.names[host] = "10.0.0.1"
        if host != NAME:  # the proxies themselves
            self.names[host] = "127.0.0.1"
            self.asked.remove(host)
        return found


async def resolving_proxy(connection: Connection, request: Request) -> None:
    """A proxy that knows the name itself."""
    target = request.target.replace(NAME, "127.0.0.1")
    await forward(connection, Request(request.method, target, request.headers, request.head))


async def test_a_proxy_that_resolves_is_given_the_name_and_the_worker_asks_nobody(scene: Scene) -> None:
    scene.world.settings().proxy_resolves = True
    names = scene.world.names = FixedNames({"127.0.0.1": "127.0.0.1"})
    proxy = await scene.proxy("p", resolving_proxy)
    await scene.world.fetch(scene.url, pools=("p",))
    place = f"{NAME}:{scene.target.port}"
    assert proxy.targets == [place if scene.tunnel else f"http://{place}/"]
    assert [request.get("host") for request in scene.target.seen] == [place]
    assert NAME not in names.asked
    assert scene.world.body() == BODY


@pytest.mark.parametrize("resolves", [False, True])
async def test_an_address_that_may_not_be_dialled_is_asked_of_no_proxy(world: World, resolves: bool) -> None:
    world.settings().proxy_resolves = resolves
    proxy = await world.another_origin(default=forward)
    pools = (pool(world, "p", proxy.port),)
    hidden = ("10.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::1]")
    for scheme in ("http", "https"):
        for place in hidden:
            failure = await world.fails(f"{scheme}://{place}/", pools=pools)
            assert failure.code == "VALIDATION_BLOCKED_ADDRESS", (scheme, place)
    world.origin.on("/", redirect("http://169.254.169.254/latest"))
    assert (await world.fails("/", pools=pools)).code == "VALIDATION_BLOCKED_ADDRESS"
    assert len(proxy.seen) == 1, "the redirect itself"
    assert json.dumps([request.target for request in proxy.seen]).count("169.254") == 0


OWN_ERRORS = {
    "proxy-status": ("500 Oops", "Proxy-Status: p.example; error=dns_error"),
    "squid": ("404 Not Found", "X-Squid-Error: ERR_DNS_FAIL 0"),
    "via-alone": ("404 Not Found", "Via: 1.1 p.example"),
    "407": ("407 Proxy Authentication Required", "Proxy-Authenticate: Basic"),
    "502": ("502 Bad Gateway", "Server: p"),
    "503": ("503 Service Unavailable", "Server: p"),
    "504": ("504 Gateway Timeout", "Server: p"),
}


@pytest.mark.parametrize("name", OWN_ERRORS)
async def test_an_error_that_a_proxy_made_is_its_own(world: World, name: str) -> None:
    status, *fields = OWN_ERRORS[name]
    bad = await world.another_origin(default=answer(b"by the proxy", *fields, status=status))
    good = await world.another_origin(default=forward)
    world.origin.default = then_close(answer(BODY))
    pools = (pool(world, "bad", bad.port), pool(world, "good", good.port))
    clients = await RedisClients.open(world.config.redis)
    breakers = Told(clients, world.config.circuit_breaker, SystemClock())
    fetcher = await world.new_fetcher(breakers=breakers)
    try:
        failure = await world.fails(pools=pools[:1], fetcher=fetcher)
        assert breakers.results == []
        assert failure.facts["fault"] in {"proxy", "unclear"}
        assert failure.facts["proxies"] == f"127.0.0.1:{bad.port}"
        if name in {"proxy-status", "squid", "407"}:
            assert failure.code == "DOWNLOAD_PROXY"
        fetched = await world.fetch(pools=pools, fetcher=fetcher)
        assert fetched.proxy == f"127.0.0.1:{good.port}"
        assert breakers.results == [True]
    finally:
        await breakers.stop()
        await clients.close()


@pytest.mark.parametrize(
    "fields",
    [
        ("Server: origin", "Via: 1.1 p.example"),
        ("Server: origin", "Proxy-Status: p.example; received-status=404; error=http_request_error"),
        ("Proxy-Status: p.example; next-hop=origin",),
        (),
    ],
)
async def test_an_error_that_a_proxy_passes_on_is_the_origins(world: World, fields: tuple[str, ...]) -> None:
    first = await world.another_origin(default=answer(b"", *fields, status="404 Not Found"))
    second = await world.another_origin(default=forward)
    failure = await world.fails(pools=(pool(world, "first", first.port), pool(world, "second", second.port)))
    assert (failure.code, failure.facts["fault"]) == ("DOWNLOAD_HTTP_404", "origin")
    assert second.seen == []


@pytest.mark.parametrize(
    "status", ["200 OK", "201 Created", "204 No Content", "299 Fine", "200 OK\r\nContent-Length: 5"]
)
async def test_any_success_opens_a_tunnel(scene: Scene, status: str) -> None:
    async def opening(connection: Connection, request: Request) -> None:
        class Renamed:
            """Says the other status."""

            def __getattr__(self, name: str) -> Any:
                return getattr(connection.writer, name)

            def write(self, data: bytes) -> None:
                connection.writer.write(data.replace(b"200 Connection established", status.encode(), 1))

        await forward(Connection(connection.reader, Renamed()), request)  # type: ignore[arg-type]

    if scene.tunnel:
        proxy = await scene.proxy("p", opening)
        fetched = await scene.world.fetch(scene.url, pools=("p",))
        assert fetched.proxy == f"127.0.0.1:{proxy.port}"
        assert scene.world.body() == BODY


async def test_what_fails_names_every_proxy_that_was_asked(world: World) -> None:
    gone = await world.another_origin()
    await gone.__aexit__()
    bad = await world.another_origin(default=answer(b"", status="502 Bad Gateway"))
    last = await world.another_origin(default=answer(b"", "Server: o", status="410 Gone"))
    ports = (gone.port, bad.port, last.port)
    pools = tuple(pool(world, f"p{port}", port, user="user:p4ss") for port in ports)
    for some in (pools, pools[:2], pools[:1]):
        failure = await world.fails(pools=some, fetcher=await world.new_fetcher())
        for port in ports[: len(some)]:
            assert f"127.0.0.1:{port}" in failure.message
        assert "p4ss" not in f"{failure} {failure.facts}"
    world.settings().timeout.FromMilliseconds(300)
    silent = await world.another_origin(default=then_hang(b""))
    failure = await world.fails(pools=(pools[0], pool(world, "silent", silent.port)), fetcher=await world.new_fetcher())
    assert failure.code == "DOWNLOAD_DEADLINE"
    assert f"127.0.0.1:{gone.port}, 127.0.0.1:{silent.port}" in failure.message
