"""Clients of the ingest server's services, as a gateway is one: what they have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

import grpc

from fetchbox.config.v1.config_pb2 import Config
from ingest_svc.bootstrap import build
from ingest_svc.publication import Reached
from kernel.service.resources import Resources


class Served:
    """Calls one service through its stub."""

    make_stub: ClassVar[Callable[[grpc.aio.Channel], Any]]

    def __init__(self, stub: Any, resources: Resources, config: Config) -> None:
        self.stub = stub
        self.resources = resources
        self.config = config
        self.redis = resources.redis.commands

    @classmethod
    @asynccontextmanager
    async def serving(
        cls, config: Config, resources: Resources, reached: Reached = lambda _step: None
    ) -> AsyncIterator[Self]:
        """A client of a server that runs in this process meanwhile."""
        service = await build(config, resources, reached)
        await service.start()
        try:
            async with cls.at(config.ingest.listen, config, resources) as made:
                yield made
        finally:
            await service.stop()

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str, config: Config, resources: Resources) -> AsyncIterator[Self]:
        """A client of a server that is there."""
        async with grpc.aio.insecure_channel(address) as channel:
            yield cls(cls.make_stub(channel), resources, config)


def credentials(token: str, key: str | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a call: a token, and an idempotency key."""
    told = {"authorization": f"Bearer {token}" if token else None, "idempotency-key": key}
    return tuple((name, value) for name, value in told.items() if value is not None)
