"""TLS, with certificates made for the test."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import trustme

from tests.fetching.cases import case
from tests.fetching.origin import answer
from tests.fetching.world import FixedNames, World

LONG_AGO = datetime.now(UTC) - timedelta(days=1)


def server_context(authority: trustme.CA, host: str, **options: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host, **options).configure_cert(context)  # type: ignore[arg-type]  # only `not_after`
    return context


def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@case("FC-100")
async def certificates(world: World) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    world.ssl_context = client_context(authority)
    world.names = FixedNames({"good.example": "127.0.0.1", "good.example.": "127.0.0.1"})
    good = await world.another_origin(tls=server_context(authority, "good.example"), default=answer(b"fine"))
    for host in ("good.example", "good.example."):
        await world.fetch(good.url("/", host))
        assert world.body() == b"fine"
    for context, reason in (
        (server_context(authority, "good.example", not_after=LONG_AGO), "expired"),
        (server_context(authority, "other.example"), "mismatch"),
        (server_context(stranger, "good.example"), "issuer"),
    ):
        bad = await world.another_origin(tls=context, default=answer(b"never"))
        outcome = await world.outcome(bad.url("/", "good.example"), resource_id="r2")
        assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TLS_CERTIFICATE"]
        said = str(outcome.failures[0].facts["reason"])
        assert reason in said, said
        assert bad.seen == []

    def no_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(no_tls, "127.0.0.1") as plain:
        port = plain.sockets[0].getsockname()[1]
        failure = await world.fails(f"https://127.0.0.1:{port}/", resource_id="r2")
    assert failure.code == "DOWNLOAD_TLS_ABSENT", failure
