"""The stream lane: tasks of `fetchbox.jobs.tasks`, handed out through the consumer group `workers`."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.lanes.types import Claim, Failure, Outcome, Settled, Success
from kernel.redis import RedisClients

__all__ = ["Claim", "Failure", "Outcome", "Settled", "StreamLane", "Success"]


class StreamLane:
    """One worker's share of the task streams."""

    def __init__(
        self,
        clients: RedisClients,
        config: config_pb2.Config,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
        finalizes: Callable[[str], bool],
        max_retries: Callable[[str], int],
    ) -> None:
        self.lost = asyncio.Event()
        """Set when the lease has lapsed: every claim is void. Cleared once a new lease exists."""

    async def start(self) -> None:
        """Registers the worker and begins to renew its lease. Raises `UNAVAILABLE` where Redis does not answer."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Finishes what is being settled, ends the lease and leaves. Safe twice."""
        raise NotImplementedError

    async def claim(self, limit: int, wait: float) -> list[Claim]:
        """Up to `limit` tasks to run now; waits up to `wait` seconds for the first. Safe to cancel."""
        raise NotImplementedError

    async def settle(self, claim: Claim, outcome: Outcome) -> Settled:
        """Records the outcome of a claim, publishes what it changed and acknowledges it."""
        raise NotImplementedError

    async def give_back(self, claims: Iterable[Claim]) -> None:
        """Returns claims unrun; that costs them neither an attempt nor a crash."""
        raise NotImplementedError

    async def reconcile(self, running: Collection[Claim]) -> int:
        """Gives back what the server counts as ours and nobody here runs; returns how many."""
        raise NotImplementedError

    async def canceled(self, job_ids: Iterable[str]) -> set[str]:
        """Those of the jobs that have been canceled or have ended otherwise."""
        raise NotImplementedError

    async def finals(self, limit: int) -> list[str]:
        """Jobs whose finalization is due and that nobody seems to be finalizing."""
        raise NotImplementedError

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is still ours: our lease has not lapsed since."""
        raise NotImplementedError
