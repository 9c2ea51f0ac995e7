"""Submits under an idempotency key: one script decides who submits, who waits and who has the answer already."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fetchbox.config.v1 import config_pb2
from kernel.durations import seconds
from kernel.redis import scripts
from kernel.redis.clients import RedisClients
from kernel.redis.link import Link, command, is_error
from kernel.redis.pipe import Command, PipeLost
from kernel.telemetry.logs import get_logger

_log = get_logger(__name__)
State = Literal["new", "taken_over", "running", "done", "conflict", "foreign"]
_STATES: dict[bytes, State] = {
    b"new": "new",
    b"taken_over": "taken_over",
    b"running": "running",
    b"done": "done",
    b"conflict": "conflict",
    b"foreign": "foreign",
}


@dataclass(frozen=True, slots=True)
class BegunSubmit:
    """How a submit stands."""

    state: State
    """`new` and `taken_over`: submit under `job_id`, within the lease. `running`: another does, ask again after
    `wait_ms`. `done`: `answer` is the answer. `conflict`: the key was used with another document.
    `foreign`: another gateway made `job_id`, whatever it calls that, under the key."""
    job_id: str
    wait_ms: int = 0
    answer: bytes = b""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """An idempotency key, the document that it stands for, and the job id that this submit proposes."""

    name: str
    """The Redis key that stands for the idempotency key in its scope."""
    digest: str
    proposed: str
    window_ms: int


class Submits:
    """The memory of submits. Each has a name: the Redis key of its idempotency key in its scope."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients

    async def begin(
        self,
        name: str,
        digest: str,
        proposed_job_id: str,
        lease_ms: int,
        window_ms: int,
    ) -> BegunSubmit:
        """Claims the name for a document with this digest; a submitter that died is taken over with its job id."""
        return _begun(
            await self._clients.call(scripts.SUBMIT_BEGIN, [name], [digest, proposed_job_id, lease_ms, window_ms])
        )

    async def finish(self, name: str, job_id: str, answer: bytes) -> bool:
        """Keeps the answer for every later submit with the name; False where the name holds another job by now."""
        return bool(await self._clients.call(scripts.SUBMIT_FINISH, [name], [job_id, answer]))

    async def forget(self, name: str, job_id: str, proposed_job_id: str) -> bool:
        """Frees a name that is claimed by who proposed that id, once it is known that `job_id` will not be made."""
        return bool(await self._clients.call(scripts.SUBMIT_FORGET, [name], [job_id, proposed_job_id]))


class SubmitBatches:
    """The same memory for many submits at once, on a connection of its own; a duty of the service."""

    name = "submit-batches"

    def __init__(self, clients: RedisClients, config: config_pb2.Redis) -> None:
        loaded = (scripts.SUBMIT_BEGIN, scripts.SUBMIT_FORGET)
        self._link = Link(clients, "fetchbox-submits", loaded, seconds(config.read_timeout))
        self._tries = config.max_retries

    async def start(self) -> None:
        """Nothing to begin: the connection comes with its first work."""

    async def drain(self, grace: float) -> None:
        """Nothing to wait for: those whose submits these are wait for them."""

    async def stop(self) -> None:
        """Lets go of the connection; safe twice."""
        self._link.close()

    async def begin(self, asked: Iterable[KeyClaim], lease_ms: int) -> list[BegunSubmit | None]:
        """Claims each name as `Submits.begin` does; None for one whose key in Redis is of no use."""
        calls = [
            command(scripts.SUBMIT_BEGIN, [one.name], [one.digest, one.proposed, lease_ms, one.window_ms])
            for one in asked
        ]
        return [None if is_error(reply) else _begun(reply) for reply in await self._run(calls)]

    async def forget(self, asked: Iterable[KeyClaim]) -> None:
        """Frees the names that are claimed for the jobs that were proposed, once none of these will be made."""
        await self._run([command(scripts.SUBMIT_FORGET, [one.name], [one.proposed] * 2) for one in asked])

    async def _run(self, calls: list[Command]) -> list[Any]:
        for left in range(self._tries, 0, -1):
            try:
                return await self._link.run(calls)
            except PipeLost:
                _log.debug("submits_repeated", count=len(calls), attempts=left)
        return await self._link.run(calls)


def _begun(reply: Any) -> BegunSubmit:
    state, job_id, wait_ms, answer = reply
    return BegunSubmit(_STATES[state], job_id.decode(errors="replace"), int(wait_ms), answer)
