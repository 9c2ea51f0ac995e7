"""Submits under an idempotency key: one script decides who submits, who waits and who has the answer already."""

from dataclasses import dataclass
from typing import Literal

from kernel import keys, scripts
from kernel.redis import RedisClients

State = Literal["new", "taken_over", "running", "done", "conflict"]
_STATES: dict[bytes, State] = {
    b"new": "new",
    b"taken_over": "taken_over",
    b"running": "running",
    b"done": "done",
    b"conflict": "conflict",
}


@dataclass(frozen=True, slots=True)
class Begun:
    """How a submit stands."""

    state: State
    """`new` and `taken_over`: submit under `job_id`, within the lease. `running`: another does, ask again after
    `wait_ms`. `done`: `answer` is the answer. `conflict`: the key was used with another document."""
    job_id: str
    wait_ms: int = 0
    answer: bytes = b""


class Submits:
    """The memory of submits, per tenant, job type and key."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients

    async def begin(
        self,
        tenant: str,
        job_type: str,
        key: str,
        digest: str,
        proposed_job_id: str,
        lease_ms: int,
        window_ms: int,
    ) -> Begun:
        """Claims the key for a document with this digest; a submitter that died is taken over with its job id."""
        reply = await self._clients.call(
            scripts.SUBMIT_BEGIN,
            [keys.manifest_idempotency(tenant, job_type, key)],
            [digest, proposed_job_id, lease_ms, window_ms],
        )
        state, job_id, wait_ms, answer = reply
        return Begun(_STATES[state], job_id.decode(), int(wait_ms), answer)

    async def finish(self, tenant: str, job_type: str, key: str, job_id: str, answer: bytes) -> bool:
        """Keeps the answer for every later submit with the key; False where the key holds another job by now."""
        reply = await self._clients.call(
            scripts.SUBMIT_FINISH, [keys.manifest_idempotency(tenant, job_type, key)], [job_id, answer]
        )
        return bool(reply)
