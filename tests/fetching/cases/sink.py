"""The way into the store: checksums, and a store that misbehaves."""

import hashlib
import io
import random
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore
from tests.fetching.cases import case
from tests.fetching.origin import answer
from tests.fetching.world import World

DATA = b"the data of the resource"
SHA256 = hashlib.sha256(DATA).hexdigest()


@case("FC-107")
async def another_digest(world: World) -> None:
    world.origin.on("/", answer(DATA))
    wrong = "0" * 64
    outcome = await world.outcome(hint=f"sha256:{wrong}")
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_CHECKSUM_MISMATCH"]
    assert SHA256 in outcome.failures[0].message
    assert wrong in outcome.failures[0].message


@case("FC-108")
async def spellings_of_hints(world: World) -> None:
    world.origin.on("/", answer(DATA))
    fetched = await world.fetch(hint=f"SHA256:{SHA256.upper()}")
    assert fetched.checksum == "wire"
    for algorithm in ("sha512", "sha1", "md5"):
        digest = hashlib.new(algorithm, DATA).hexdigest()
        assert (await world.fetch(hint=f"{algorithm}:{digest}")).checksum == "wire"
    asked = len(world.origin.seen)
    for number, hint in enumerate(
        (f"sha256:{SHA256[:63]}", "crc9:00", "sha256:deadbeef", SHA256, "sha256:" + "g" * 64)
    ):
        outcome = await world.outcome(hint=hint, resource_id=f"bad{number}")
        assert [failure.code for failure in outcome.failures] == ["VALIDATION_CHECKSUM_HINT"], hint
    assert len(world.origin.seen) == asked
    world.job_type().checksum = "lenient"
    fetched = await world.fetch(hint="sha256:deadbeef")
    assert fetched.flags == ("checksum_hint_ignored",)


class Front:
    """Stands before the store: refuses some puts, and every body with chunk framing of its own."""

    def __init__(self, store: str, busy: int = 0) -> None:
        self._store = store
        self._busy = busy
        self.calls: Counter[str] = Counter()

    async def serve(self, world: World) -> ObjectStore:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(application)
        await runner.setup()
        world.stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._session = await world.stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        config = Config()
        config.CopyFrom(world.config)
        config.object_store.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        objects = ObjectStore(config.object_store)
        world.stack.push_async_callback(objects.close)
        return objects

    async def _handle(self, request: web.Request) -> web.Response:
        self.calls[request.method] += 1
        if request.method == "PUT" and self._busy:
            self._busy -= 1
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>", content_type="application/xml")
        framed = "aws-chunked" in request.headers.get("content-encoding", "") or "x-amz-trailer" in request.headers
        if framed or request.headers.get("x-amz-content-sha256", "").startswith("STREAMING"):
            return web.Response(status=501, text="<Error><Code>NotImplemented</Code></Error>")
        headers: dict[str, Any] = {k: v for k, v in request.headers.items() if k.lower() != "transfer-encoding"}
        store = urlsplit(self._store)
        url = aiohttp.client.URL(f"{store.scheme}://{store.netloc}{request.raw_path}", encoded=True)
        async with self._session.request(
            request.method, url, headers=headers, data=io.BytesIO(await request.read()), allow_redirects=False
        ) as got:
            body = await got.read()
            kept = {k: v for k, v in got.headers.items() if k.lower() not in {"content-length", "transfer-encoding"}}
            return web.Response(status=got.status, body=body, headers=kept)


@case("FC-109")
async def busy_store(world: World) -> None:
    world.origin.on("/", answer(DATA))
    front = Front(world.config.object_store.endpoint, busy=2)
    fetcher = await world.new_fetcher(objects=await front.serve(world))
    await world.fetch(fetcher=fetcher)
    assert world.body() == DATA
    assert front.calls["PUT"] == 3
    assert len(world.origin.seen) == 1


@case("FC-110")
async def store_without_trailers(world: World) -> None:
    front = Front(world.config.object_store.endpoint)
    fetcher = await world.new_fetcher(objects=await front.serve(world))
    for name, size in (("five", 5 << 20), ("twenty", 20 << 20)):
        data = random.Random(size).randbytes(size)
        world.origin.on(f"/{name}", answer(data))
        fetched = await world.fetch(f"/{name}", fetcher=fetcher, resource_id=name)
        assert fetched.sha256 == hashlib.sha256(data).hexdigest()
        assert world.body(name) == data
