"""Submits under an idempotency key: one script decides who submits, who waits and who has the answer already."""

from dataclasses import dataclass
from typing import Literal

from kernel.redis import scripts
from kernel.redis.clients import RedisClients

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
        reply = await self._clients.call(scripts.SUBMIT_BEGIN, [name], [digest, proposed_job_id, lease_ms, window_ms])
        state, job_id, wait_ms, answer = reply
        return BegunSubmit(_STATES[state], job_id.decode(errors="replace"), int(wait_ms), answer)

    async def finish(self, name: str, job_id: str, answer: bytes) -> bool:
        """Keeps the answer for every later submit with the name; False where the name holds another job by now."""
        return bool(await self._clients.call(scripts.SUBMIT_FINISH, [name], [job_id, answer]))

    async def forget(self, name: str, job_id: str, proposed_job_id: str) -> bool:
        """Frees a name that is claimed by who proposed that id, once it is known that `job_id` will not be made."""
        return bool(await self._clients.call(scripts.SUBMIT_FORGET, [name], [job_id, proposed_job_id]))
