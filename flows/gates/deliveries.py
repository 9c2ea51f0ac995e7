"""Events, webhooks and triggers on their way to the gates that they open.

A delivery becomes the *hit* of a gate: a field of its run's order, at most one, the first one wins. Whoever looks at
the run next releases the gate with it, and takes it away in the same step. Gates that wait for a channel and key are
registered under their `Correlation`; a delivery that finds none is parked, and the gate that it opens takes it when it
is placed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import orjson

from fetchbox.config.v1.config_pb2 import FlowEngine
from flows.model import values
from flows.model.order import HIT, WAIT
from kernel.durations import millis
from kernel.redis import keys, scripts
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey

By: TypeAlias = Literal["webhook", "event", "manual"]
Waiting: TypeAlias = Literal["waits", "hit", "conflict"]

ANY: Final = "any"
"""Opens every gate of its channel and key: an event, or a webhook whose sender has proved who it is."""
NONE: Final = "none"
"""Opens those gates that want no secret."""
_BATCH: Final = 400
"""Gates that one call of the script releases at most."""
ANSWER_MS: Final = 120_000
"""How long a call may be repeated: longer than a client of Redis tries."""


@dataclass(frozen=True, slots=True)
class Hit:
    """What opens a gate."""

    by: By
    payload: bytes | None = None
    """JSON, byte for byte as it came."""
    payload_key: str = ""
    """The key of the object that it is in, where it is too large for an event."""

    def encode(self) -> bytes:
        """The hit as it is stored."""
        return values.joined({"by": orjson.dumps(self.by), **self._members()})

    @classmethod
    def decode(cls, stored: bytes) -> Hit:
        """The hit that was stored."""
        found = values.members(stored)
        key: str = orjson.loads(found.get("payloadKey", b'""'))
        return cls(orjson.loads(found["by"]), found.get("payload"), key)

    def release(self, token: str) -> dict[str, bytes]:
        """The members of a `step.await.triggered` that it leads to, beside the step; each is JSON."""
        return {"by": orjson.dumps(self.by), "token": orjson.dumps(token), **self._members()}

    def _members(self) -> dict[str, bytes]:
        if self.payload_key:
            return {"payloadKey": orjson.dumps(self.payload_key)}
        return {} if self.payload is None else {"payload": self.payload}


@dataclass(frozen=True, slots=True)
class Correlation:
    """What brings a delivery and a gate together."""

    tenant: str
    by: By
    channel: str
    key: str

    def digest(self) -> str:
        """SHA-256, hex, of the parts, each behind its length."""
        parts = (part.encode() for part in (self.tenant, self.by, self.channel, self.key))
        return sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class Opens:
    """Which gates of its channel and key a delivery opens: by `ANY` or `NONE`, or by the digest of a secret."""

    what: str
    run: RunKey = keys.NO_RUN
    """The gate of the secret."""
    step_key: str = ""


@dataclass(frozen=True, slots=True)
class OnceDelivered:
    """What a delivery is remembered by that counts once, however often and by whomever it is sent."""

    name: str
    """Its own; a repetition has the same."""
    keep_ms: int
    """How long it is remembered."""
    mark: str = ""
    """A key that is its alone: another delivery that has it too is refused. Empty: none."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a delivery did."""

    released: int = 0
    """How many gates it opened."""
    parked: bool = False
    """Whether it is kept for a gate."""


def settled(step_key: str) -> tuple[str, str]:
    """The fields of an order that are to be cleared with the event that settles the gate of a step."""
    return HIT + step_key, WAIT + step_key


class Deliveries:
    """Hands deliveries to gates. All methods may be repeated; they raise `UNAVAILABLE` where Redis does not answer."""

    def __init__(self, clients: RedisClients, config: FlowEngine) -> None:
        self._clients = clients
        self._keep_ms = millis(config.parked_ttl)
        self._max_parked = config.max_parked

    async def wait(
        self, run: RunKey, step_key: str, correlation: Correlation, fence: int, *, needs_secret: bool
    ) -> Waiting:
        """Registers a gate that is placed and waits, unless something that opens it has come already.

        `hit`: it has, and is the gate's hit now. `conflict`: the run has another revision than `fence`, read it again.
        """
        digest = correlation.digest()
        reply = await self._clients.call(
            scripts.FLOW_WAIT,
            [keys.flow(run), *_waiting(digest), keys.GATE_PARKED, keys.FLOWS_DUE, keys.FLOWS_WAKE],
            [run, step_key, fence, digest, int(not needs_secret), self._keep_ms],
        )
        verdicts: dict[bytes, Waiting] = {b"waits": "waits", b"hit": "hit", b"conflict": "conflict"}
        return verdicts[reply[0]]

    async def forget(self, run: RunKey, step_key: str, correlation: Correlation) -> None:
        """Takes a gate that is settled from the registers. Nothing is lost where it stays: deliveries pass it over."""
        async with self._clients.commands.pipeline(transaction=False) as pipeline:
            for register in _waiting(correlation.digest()):
                pipeline.execute_command("ZREM", register, f"{run}/{step_key}")
            await pipeline.execute()

    async def is_awaited(self, correlation: Correlation) -> bool:
        """Whether a gate waits that opens without a secret. Raises `UNAVAILABLE`."""
        return bool(await self._clients.commands.execute_command("EXISTS", keys.gate_free(correlation.digest())))

    async def deliver(
        self, correlation: Correlation, hit: Hit, opens: Opens, *, parks: bool = True, once: OnceDelivered | None = None
    ) -> Delivered | None:
        """Opens every gate that waits for it; where there is none, it is kept if `parks`. None: it opens nothing.

        A repetition of what counts `once` changes nothing and gets what was recorded, and None for another correlation.

        Of what opens `ANY` or `NONE` the last `flow_engine.max_parked` are kept for a channel and key; with a secret
        the first one is, for ten channels and keys at most.
        """
        digest, delivery = correlation.digest(), hit.encode()
        once = once or OnceDelivered(os.urandom(12).hex(), ANSWER_MS)
        if once.mark and not await self._is_own(once):
            return None
        released, turn, more = 0, 0, True
        while more:
            count, parked, refused, more = await self._clients.call(
                scripts.FLOW_DELIVER,
                [
                    *(keys.FLOW, *_waiting(digest), keys.GATE_PARKED),
                    *(keys.gate_answer(f"{once.name}.{turn}"), keys.FLOWS_DUE, keys.FLOWS_WAKE),
                ],
                [
                    *(digest, delivery, opens.what, opens.run, opens.step_key, int(parks and not released)),
                    *(self._max_parked, self._keep_ms, _BATCH, once.keep_ms),
                ],
            )
            released, turn = released + count, turn + 1
        if refused and not released:
            return None
        return Delivered(released, bool(parked))

    async def _is_own(self, once: OnceDelivered) -> bool:
        """Whether the mark of a delivery is its own, which it is from now on where nobody has it."""
        marked = ("SET", once.mark, once.name, "NX", "GET", "PX", once.keep_ms)
        holder: bytes | None = await self._clients.commands.execute_command(*marked, get=True)
        return holder in (None, once.name.encode())

    async def keep(self, run: RunKey, step_key: str, hit: Hit, fence: int) -> bool:
        """Makes something the hit of a gate that is not placed yet.

        False: the run has another revision than `fence`, has ended, or something else came first.
        """
        kept, _ = await self._clients.call(
            scripts.FLOW_HIT,
            [keys.flow(run), keys.FLOWS_DUE, keys.FLOWS_WAKE],
            [run, step_key, fence, hit.encode()],
        )
        return bool(kept)


def _waiting(digest: str) -> tuple[str, str]:
    return keys.gate_free(digest), keys.gate_guarded(digest)
