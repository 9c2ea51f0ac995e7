"""Proxies: the next one when one fails, and their credentials kept to themselves."""

import asyncio
import base64
from contextlib import suppress

import trustme

from tests.fetching.cases import case
from tests.fetching.cases.tls import client_context, server_context
from tests.fetching.origin import Answer, Connection, Request, answer, echo, redirect
from tests.fetching.world import FixedNames, World

PAIR = "Basic " + base64.b64encode(b"user:p4ss").decode()


async def forward(connection: Connection, request: Request) -> None:
    """A working forward proxy: CONNECT tunnels, and requests in absolute form."""
    authority, _, path = request.target.removeprefix("http://").partition("/")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(authority.rpartition(":")[2]))
    try:
        await between(connection, request, path, reader, writer)
    finally:
        writer.close()


async def between(
    connection: Connection, request: Request, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if request.method == "CONNECT":
        await connection.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(connection.reader, writer), pump(reader, connection.writer))
        return
    head = b"".join(
        f"{name}: {value}\r\n".encode() for name, value in request.headers if name.lower() != "proxy-authorization"
    )
    writer.write(f"GET /{path} HTTP/1.1\r\n".encode() + head + b"Connection: close\r\n\r\n")
    await pump(reader, connection.writer)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


def pool(world: World, name: str, *ports: int, user: str = "") -> str:
    at = f"{user}@" if user else ""
    world.config.proxies[name].urls.extend(f"http://{at}127.0.0.1:{port}" for port in ports)
    return name


@case("FC-103")
async def the_second_works(world: World) -> None:
    gone = await world.another_origin()
    dead = gone.port
    await gone.__aexit__()
    working = await world.another_origin(default=forward)
    world.origin.default = echo
    pools = (pool(world, "first", dead), pool(world, "second", working.port))
    fetched = await world.fetch(pools=pools)
    assert fetched.proxy == f"127.0.0.1:{working.port}"
    assert world.metadata()["Metadata"]["proxy"] == fetched.proxy
    assert len(world.origin.seen) == 1
    alone = await world.fails(pools=("first",), resource_id="r2")
    assert alone.code == "DOWNLOAD_PROXY"
    assert (await world.fails(pools=("nowhere",), resource_id="r2")).code == "VALIDATION_TASK"


@case("FC-104")
async def the_proxys_fault(world: World) -> None:
    authority = trustme.CA()
    world.ssl_context = client_context(authority)
    world.names = FixedNames({"target.example": "127.0.0.1", "127.0.0.1": "127.0.0.1"})
    tls = server_context(authority, "target.example")
    target = await world.another_origin(tls=tls, default=answer(b"fine"))
    refusals: list[Answer] = [
        answer(b"", "Proxy-Authenticate: Basic", status="407 Proxy Authentication Required"),
        answer(b"", status="502 Bad Gateway"),
    ]
    bad = [await world.another_origin(default=refusal) for refusal in refusals]
    working = await world.another_origin(default=forward)
    pool(world, "bad", *(proxy.port for proxy in bad))
    pool(world, "good", working.port)
    url = target.url("/", "target.example")
    failure = await world.fails(url, pools=("bad",))
    assert failure.code == "DOWNLOAD_PROXY"
    assert failure.facts["fault"] == "proxy"
    assert target.seen == []
    assert all(proxy.seen for proxy in bad)
    fetched = await world.fetch(url, pools=("bad", "good"))
    assert fetched.proxy == f"127.0.0.1:{working.port}"
    world.origin.default = echo
    pool(world, "407", bad[0].port)
    plain = await world.fails(pools=("407",), fetcher=await world.new_fetcher(), resource_id="r2")
    assert plain.code == "DOWNLOAD_PROXY"


@case("FC-106")
async def proxy_credentials(world: World) -> None:
    authority = trustme.CA()
    world.ssl_context = client_context(authority)
    world.names = FixedNames({"target.example": "127.0.0.1", "127.0.0.1": "127.0.0.1", "inner.example": "127.0.0.9"})
    secure = await world.another_origin(tls=server_context(authority, "target.example"), default=echo)
    proxy = await world.another_origin(default=forward)
    world.origin.on("/", redirect(secure.url("/", "target.example")))
    fetched = await world.fetch(pools=(pool(world, "p", proxy.port, user="user:p4ss"),))
    assert [request.get("proxy-authorization") for request in proxy.seen] == [PAIR, PAIR]
    assert [request.method for request in proxy.seen] == ["GET", "CONNECT"]
    assert len(secure.seen) == 1
    assert world.origin.seen[0].get("proxy-authorization") is None
    assert b"roxy-" not in secure.seen[0].head
    assert "p4ss" not in repr(fetched)
    # What may not be dialled is not asked of a proxy either (dynamo#14474).
    asked = len(proxy.seen)
    failure = await world.fails("http://inner.example/", pools=("p",), resource_id="r2")
    assert failure.code == "VALIDATION_BLOCKED_ADDRESS"
    assert len(proxy.seen) == asked
