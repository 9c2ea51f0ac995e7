"""What a case has: an origin, a real object store, fetchers, and the lane's habit of trying again."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from fetchbox.config.v1.config_pb2 import Config, Secret
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader, ProxyHint, TaskAttributes
from kernel.breakers.hostgate import HostGates, MemoryHostGates
from kernel.clock import SystemClock
from kernel.config.loading import job_type
from kernel.errors import is_retryable
from kernel.objects import ObjectStore
from tests.fetching.origin import Origin
from worker_svc.fetch import Fetched, Fetcher, FetchFailure, policy_of

Headers = Mapping[str, str] | list[tuple[str, str]]


class FixedNames(AbstractResolver):
    """A hosts file."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        address = self.names.get(host.rstrip("."))
        if address is None:
            raise OSError(f"no address for {host}")
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@dataclass
class Outcome:
    """How a task ended in the end."""

    fetched: Fetched | None
    failures: list[FetchFailure]

    @property
    def attempts(self) -> int:
        return len(self.failures) + (self.fetched is not None)


@dataclass
class World:
    """One case's surroundings."""

    config: Config
    objects: ObjectStore
    s3_client: Any
    bucket: str
    stack: AsyncExitStack
    gates: HostGates = field(default_factory=lambda: MemoryHostGates(SystemClock()))
    names: FixedNames | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    ssl_context: Any = None
    origin: Origin = field(default_factory=Origin)
    _fetcher: Fetcher | None = None

    async def another_origin(self, **options: Any) -> Origin:
        return await self.stack.enter_async_context(Origin(**options))

    async def new_fetcher(self, gates: HostGates | None = None, objects: Any = None, **options: Any) -> Fetcher:
        fetcher = Fetcher(
            self.config,
            objects or self.objects,
            gates or self.gates,
            SystemClock(),
            secrets=self.secrets,
            resolver=self.names,
            ssl_context=self.ssl_context,
            **options,
        )
        await fetcher.start()
        self.stack.push_async_callback(fetcher.close)
        return fetcher

    async def fetcher(self) -> Fetcher:
        if self._fetcher is None:
            self._fetcher = await self.new_fetcher()
        return self._fetcher

    def task(
        self,
        url: str = "/",
        *,
        headers: Headers = (),
        hint: str = "",
        mime: str = "",
        pools: tuple[str, ...] = (),
        resource_id: str = "r1",
        tags: Mapping[str, str] | None = None,
    ) -> DownloadTask:
        """A task for a path of the origin, or a whole URL."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return DownloadTask(
            job_id="job-1",
            job_type="default",
            resource_id=resource_id,
            url=self.origin.url(url) if url.startswith("/") else url,
            headers=[HttpHeader(name=name, value=value) for name, value in pairs],
            attributes=TaskAttributes(checksum_hint=hint, mime_hint=mime, tags=tags or {}),
            proxy_hint=ProxyHint(primary_pool=pools[0] if pools else "", fallbacks=pools[1:]),
        )

    async def fetch(self, url: str = "/", *, fetcher: Fetcher | None = None, **fields: Any) -> Fetched:
        """One attempt."""
        task = self.task(url, **fields)
        return await (fetcher or await self.fetcher()).fetch(task, policy_of(self.config, task))

    async def fails(self, url: str = "/", **fields: Any) -> FetchFailure:
        """One attempt, which must fail; nothing may be visible then."""
        try:
            fetched = await self.fetch(url, **fields)
        except FetchFailure as error:
            assert self.body(fields.get("resource_id", "r1")) is None
            return error
        raise AssertionError(f"stored: {fetched}")

    async def outcome(self, url: str = "/", tries: int = 4, **fields: Any) -> Outcome:
        """As many attempts as the failures allow, as a lane makes them."""
        failures: list[FetchFailure] = []
        while True:
            try:
                return Outcome(await self.fetch(url, **fields), failures)
            except FetchFailure as error:
                assert self.body(fields.get("resource_id", "r1")) is None
                failures.append(error)
                if not is_retryable(error.code) or len(failures) == tries:
                    return Outcome(None, failures)

    def body(self, resource_id: str = "r1") -> bytes | None:
        """What is visible at the final key."""
        return self.stored(f"resources/default/job-1/{resource_id}")

    def stored(self, key: str) -> bytes | None:
        try:
            return bytes(self.s3_client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except self.s3_client.exceptions.NoSuchKey:
            return None

    def metadata(self, resource_id: str = "r1") -> dict[str, Any]:
        key = f"resources/default/job-1/{resource_id}"
        return dict(self.s3_client.head_object(Bucket=self.bucket, Key=key))

    def declare(self, name: str, *hosts: str, **scope: Any) -> None:
        """Declares a secret; holds for fetchers made afterwards."""
        declared = Secret(**{"source": f"env:{name}", "uses": ["fetch_header"], "hosts": hosts, **scope})
        self.config.secrets[name].CopyFrom(declared)

    def open_uploads(self) -> list[Any]:
        return list(self.s3_client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))

    def settings(self) -> Any:
        """The fetcher's part of the configuration; changes hold for fetchers made afterwards."""
        return self.config.fetcher

    def job_type(self) -> Any:
        return job_type(self.config, "default")


@asynccontextmanager
async def world_of(config: Config, s3_client: Any) -> AsyncIterator[World]:
    """A world on loopback, with short timeouts."""
    config.fetcher.allow_networks.append("127.0.0.1/32")
    objects = ObjectStore(config.object_store)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(objects.close)
        world = World(config, objects, s3_client, config.object_store.bucket, stack)
        await stack.enter_async_context(world.origin)
        yield world
