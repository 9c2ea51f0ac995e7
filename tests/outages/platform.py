"""Every service of a platform in this process, on a Redis that misbehaves, and whether all of its loops are well."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.operator.v1.operator_service_pb2 import GetHealthRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub
from fetchbox.worker.v1.worker_service_pb2 import GetStatusRequest
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from ingest_svc import bootstrap as ingest
from kernel.service.resources import Resources
from kernel.service.service import Loop, Periodic, Service
from operator_svc import bootstrap as operator
from producer_svc import bootstrap as producer
from tests.outages.flights import FLIGHT, flight
from tests.outages.rig import UnrulyRedis
from worker_svc import bootstrap as worker
from worker_svc import reaper_bootstrap as reaper

HEALED = 110.0
"""The bound within which every loop has to be well again, in seconds: four times the longest pause, since a machine may
be busy."""


def paced(config: Config, files: Path) -> Config:
    """The configuration with paces that suit a test, handlers that need no network, and a directory to look at."""
    paces = {
        "worker": {"block": 100, "reap_interval": 500, "heartbeat_ttl": 3000, "drain_grace": 5000},
        "redis": {"read_timeout": 1000, "dial_timeout": 1000, "write_timeout": 1000},
        "ingest": {"submit_lease": 1000, "sweep_interval": 1000},
        "operator": {"prune_interval": 1000},
        "observability": {"queue_sample_interval": 1000},
        "reaper": {"interval": 1000},
        "producer": {"scan_interval": 1000, "settle": 100},
        "flow_engine": {"lease": 2000, "check_interval": 1000, "tidy_interval": 1000},
    }
    for section, values in paces.items():
        for name, ms in values.items():
            getattr(getattr(config, section), name).FromMilliseconds(ms)
    config.worker.backoff.base.FromMilliseconds(20)
    config.worker.backoff.max.FromMilliseconds(50)
    config.worker.count = 4
    config.job_types["computed"].CopyFrom(JobType(handler="tests.worker.custom_handlers:Computed", checksum="strict"))
    config.tasks.chat.handler = "tests.worker.task_handlers:Scripted"
    config.tasks.tool.handler = "remote"
    config.tasks.max_backlog = 10_000
    config.flows[FLIGHT].CopyFrom(flight())
    config.worker.ingest = config.ingest.listen
    config.producer.scan_dir = str(files)
    config.producer.rate_limit_per_sec = 0
    return config


class Platform:
    """Ingest, a worker, an operator, a producer and a reaper, started; clients of those that answer."""

    def __init__(self, config: Config, resources: Resources, channels: dict[str, grpc.aio.Channel]) -> None:
        self.config = config
        self.resources = resources
        self.services: list[Service] = []
        self.channels = channels
        self._operator = OperatorServiceStub(channels["operator"])
        self._worker = WorkerServiceStub(channels["worker"])

    @property
    def loops(self) -> list[Loop]:
        """All duties that go round by themselves."""
        return [duty for service in self.services for duty in service.duties if isinstance(duty, Loop)]

    async def health(self) -> dict[str, str]:
        """The status of each component, and of the whole under the empty name; what cannot be asked is `away`."""
        try:
            report = await self._operator.GetHealth(GetHealthRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return {"": "unhealthy"}
        return {"": report.status, **{part.name: part.status for part in report.components}}

    async def poll_age(self) -> float:
        """How long ago the worker was last answered when it asked for work, as it says itself."""
        return (await self._worker.GetStatus(GetStatusRequest(), timeout=10)).last_poll_age_seconds

    async def says(self, status: str) -> None:
        """Waits until the health report says so."""
        report: dict[str, str] = {}

        async def met() -> bool:
            nonlocal report
            report = await self.health()
            return report[""] == status

        await soon(met, lambda: f"health is {report}, not {status}")

    async def stale(self, seconds: float) -> None:
        """Waits until the worker says that its last answered poll is so long ago: no time passes otherwise."""

        async def met() -> bool:
            return await self.poll_age() > seconds

        await soon(met, lambda: "the age of the last poll does not rise")

    async def healed(self) -> None:
        """Every loop has done its work since this was called, and whoever asks hears that all is well."""
        since, idle = time.monotonic(), set[str]()

        async def met() -> bool:
            nonlocal idle
            idle = {loop.name for loop in self.loops if not _well(loop, since)}
            return not idle

        await soon(met, lambda: f"these loops are not well: {sorted(idle)}")
        await self.says("ok")

        async def polls() -> bool:
            return await self.poll_age() < time.monotonic() - since

        await soon(polls, lambda: "the worker does not ask for work")


def _well(loop: Loop, since: float) -> bool:
    if loop._task is None or loop._task.done():
        return False
    return not isinstance(loop, Periodic) or (loop.last_success or 0.0) > since


async def soon(met, problem, seconds: float = HEALED) -> None:
    """Polls until `met`; fails after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not await met():
        assert loop.time() < end, problem()
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def platform(config: Config, redis: UnrulyRedis) -> AsyncIterator[Platform]:
    """A running platform on this Redis; whatever state that is in, it is stopped at the end."""
    config.redis.addr = redis.addr
    resources = await Resources.open(config)
    listens = {"ingest": config.ingest.listen, "operator": config.operator.listen, "worker": config.worker.listen}
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(resources.close)
        channels = {
            name: await stack.enter_async_context(grpc.aio.insecure_channel(at)) for name, at in listens.items()
        }
        made = Platform(config, resources, channels)
        for bootstrap in (operator, ingest, worker, reaper, producer):
            service = await bootstrap.build(config, resources)
            stack.push_async_callback(service.stop)
            await service.start()
            made.services.append(service)
        yield made
