"""Secrets that open gates: told once to whoever needs one; the order of the run keeps only their SHA-256.

A secret says which gate it opens, so that one that opens nothing is told from a genuine one before the gate is placed,
and no sender without a genuine one can make FetchBox keep anything.
"""

from __future__ import annotations

import re
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe

from flows.model.order import SECRETS
from kernel.errors import no_flow
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey

_BYTES = 32
_MOST = 100
"""Secrets of one gate; a template that mentions one makes another each time it is filled in."""
_NAME = r"([A-Za-z0-9_-]{1,128})\."
_SHAPE = re.compile(rf"(?:{_NAME})?{_NAME}{_NAME}[A-Za-z0-9_-]{{43}}")


def new_secret(run: RunKey, step_key: str) -> str:
    """A new secret for the gate of a step: 32 random bytes behind the names of both, fit for a URL."""
    names = [name for name in keys.run_parts(run) if name]
    return ".".join((*names, step_key, token_urlsafe(_BYTES)))


def digest(secret: str) -> str:
    """What is kept of a secret: SHA-256, hex. Digests are compared, so the time of it tells nothing of a secret."""
    return sha256(secret.encode()).hexdigest()


def gate_of(secret: str) -> tuple[RunKey, str] | None:
    """The run and the step of the gate that a secret claims to open; None for what is no secret of ours."""
    found = _SHAPE.fullmatch(secret)
    return (keys.run(found[1] or "", found[2]), found[3]) if found else None


async def add(clients: RedisClients, run: RunKey, step_key: str) -> str:
    """A new secret that opens the gate from now on, beside those that do; `NOT_FOUND` where the run is gone."""
    secret = new_secret(run, step_key)
    if not await clients.call(scripts.FLOW_SECRET, [keys.flow(run)], [step_key, digest(secret), _MOST]):
        raise no_flow(keys.run_parts(run)[1])
    return secret


async def opens(clients: RedisClients, secret: str, run: RunKey, step_key: str) -> bool:
    """Whether a secret opens the gate of a step; False where there is no such run. Raises `UNAVAILABLE`."""
    if gate_of(secret) != (run, step_key):
        return False
    held: bytes | None = await clients.commands.execute_command("HGET", keys.flow(run), SECRETS + step_key)
    own = digest(secret)
    return any(compare_digest(own, known) for known in (held or b"").decode().split())
