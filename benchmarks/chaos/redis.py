"""`python -m benchmarks.chaos.redis [--seed N] [--seconds 120]`: work goes through, and Redis does all that it can do.

Every service runs in this process, with clients that submit manifests, create tasks, write files, work as a worker
elsewhere, and watch. Meanwhile Redis is killed, silent, out of memory, demoted, replaced by its replica, robbed of its
scripts and connections, in an order that the seed decides, often before it has healed from the last blow. In the end
every loop is well, and every job that was accepted has ended once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from cli.embedded.ports import free_ports
from cli.embedded.seaweed import SeaweedFS
from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import defaults
from tests.outages.load import KINDS, Load
from tests.outages.platform import paced, platform
from tests.outages.rig import UnrulyRedis, off, torment

_LONGEST_BLOW = 4.0
_LONGEST_REST = 5.0


class Tormentor:
    """One blow after the other; each is over, with the server as it was, when its method returns."""

    def __init__(self, redis: UnrulyRedis, rng: Random) -> None:
        self.blows: Counter[str] = Counter()
        self._redis = redis
        self._rng = rng
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self.crash, self.kill_clients, self.flush_scripts, self.hang, self.mute, self.cut, self.pause_writes,
            self.fill_memory, self.forsake_replicas, self.hand_over, self.vanish,
        ]  # fmt: skip

    async def strike(self) -> None:
        """A blow of any kind, and a rest that may be too short to heal."""
        blow = self._rng.choice(self._kinds)
        print(f"{time.strftime('%X')} {blow.__name__}", flush=True)
        await blow()
        self.blows[blow.__name__] += 1
        await asyncio.sleep(self._rng.uniform(0, _LONGEST_REST))

    async def _last(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.1, _LONGEST_BLOW))

    async def crash(self) -> None:
        """Killed with signal 9, and started again."""
        self._redis.crash()
        await self._last()
        await off(self._redis.restart)

    async def kill_clients(self) -> None:
        """Every connection is closed, again and again."""
        async with torment(lambda: self._redis.do("CLIENT KILL TYPE normal SKIPME yes"), self._rng.uniform(0.2, 1)):
            await self._last()

    async def flush_scripts(self) -> None:
        """The server forgets its scripts, again and again."""
        async with torment(lambda: self._redis.do("SCRIPT FLUSH"), self._rng.uniform(0.05, 1)):
            await self._last()

    async def hang(self) -> None:
        """Nothing passes."""
        self._redis.proxy.hold()
        await self._last()
        self._redis.proxy.flow()

    async def mute(self) -> None:
        """Commands arrive and their answers are lost."""
        self._redis.proxy.mute()
        await self._last()
        self._redis.proxy.cut()
        self._redis.proxy.flow()

    async def cut(self) -> None:
        """Connections are reset in the middle of whatever they do."""
        async with torment(self._redis.proxy.cut, self._rng.uniform(0.2, 1)):
            await self._last()

    async def pause_writes(self) -> None:
        """Reads are answered, and writes hang."""
        self._redis.do("CLIENT PAUSE 600000 WRITE")
        await self._last()
        self._redis.do("CLIENT UNPAUSE")

    async def fill_memory(self) -> None:
        """The memory is full."""
        await self._setting("maxmemory")

    async def forsake_replicas(self) -> None:
        """The server takes no writes, since no replica is near."""
        await self._setting("min-replicas-to-write")

    async def hand_over(self) -> None:
        """A caught-up replica becomes master, and the master its replica, which is gone only later."""
        old = await self._redis.hand_over(await self._redis.replica())
        await self._last()
        await off(old.kill9)

    async def vanish(self) -> None:
        """The master's machine is gone without a word, and a caught-up replica takes its place."""
        await self._redis.vanish(await self._redis.replica())

    async def _setting(self, name: str) -> None:
        self._redis.do(f"CONFIG SET {name} 1")
        await self._last()
        self._redis.do(f"CONFIG SET {name} 0")


def _configured(store: SeaweedFS, files: Path) -> Config:
    config = defaults()
    config.object_store.endpoint = store.endpoint
    config.object_store.access_key_id = store.access_key_id
    config.object_store.secret_access_key = store.secret_access_key
    config.observability.metrics_port = 0
    config.worker.completed_keep.max_count = 1_000_000
    ingest, worker, operator = (f"127.0.0.1:{port}" for port in free_ports(3))
    config.ingest.listen, config.worker.listen, config.operator.listen = ingest, worker, operator
    return paced(config, files)


async def _run(seed: int, seconds: float, redis: UnrulyRedis, config: Config) -> None:
    tormentor = Tormentor(redis, Random(seed))
    async with platform(config, redis) as running:
        load = Load(running, redis)
        load.start()
        try:
            await load.flows(1)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await tormentor.strike()
            calm = time.monotonic()
            await load.flows()
            await running.healed()
            print(f"healed {time.monotonic() - calm:.1f} s after the last blow: {dict(tormentor.blows)}")
            await load.ends()
            accepted = Counter(job.task or "manifest" for job in load.accepted)
            print(f"{len(load.accepted)} jobs ended once: {dict(accepted)}; redis was {redis.addr}")
            assert len(accepted) == len(KINDS)
        finally:
            await load.stop()


def main() -> int:
    """0 when every promise was kept, 1 when one was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.redis", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long Redis is tormented")
    arguments = parser.parse_args()
    seed = arguments.seed or secrets.randbelow(10**6) + 1
    print(f"chaos: seed {seed}", flush=True)
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fetchbox-chaos-")))
        files = data / "files"
        files.mkdir()
        store = SeaweedFS(data / "seaweedfs")
        store.start()
        stack.callback(store.stop)
        redis = UnrulyRedis(data / "redis")
        redis.start()
        stack.callback(redis.stop)
        try:
            asyncio.run(_run(seed, arguments.seconds, redis, _configured(store, files)))
        except (AssertionError, TimeoutError) as broken:
            print(f"a broken promise, seed {seed}: {broken!r}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
