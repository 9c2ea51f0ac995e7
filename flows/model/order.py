"""The order of a run: what it was started with, its fence, and what has come for its gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import orjson

from fetchbox.config.v1.config_pb2 import Flow
from flows.model.types import Run
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey

HIT: Final = "hit:"
"""What the fields begin with that hold a delivery for a gate; the key of its step follows."""
WAIT: Final = "wait:"
"""What the fields begin with of gates that wait for a delivery; the key of the step follows. What settles a gate clears
this in the same step, so that no delivery is lost to a gate that is settled."""
SECRETS: Final = "secrets:"
"""What the fields begin with that hold hashes of secrets; the key of the step behind the gate follows."""
NULL: Final = b"null"
_PAGE: Final = 500
_HEAD: Final = (b"rev", b"name", b"tenant", b"queue", b"tags")


@dataclass(frozen=True, slots=True)
class Order:
    """One order, as it stands. Its definition is shared: whoever wants to change it takes a copy."""

    run: Run
    revision: int
    """The fence: one more with each fenced append, and with each delivery for a gate."""
    definition: Flow
    tenant: str = ""
    queue: str = ""
    """The subject of its start."""
    input: bytes = NULL
    """JSON."""
    digest: str = ""
    """Of name and input: a start with another one is another start."""
    tags: tuple[str, ...] = ()
    bucket: str = ""
    """Where what is too large for its events lies; empty for a run of an older release: in today's."""
    ended_ms: int | None = None
    """When it ended, in ms by the clock of Redis."""
    logs: int = 0
    dropped: int = 0
    """Log lines beyond `flow_engine.max_logs`."""
    hits: Mapping[str, bytes] = field(default_factory=dict)
    """Step key -> the delivery for its gate, JSON; the first one."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Step key -> what its gate waits for: the digest of a `Correlation`."""
    secrets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Step key -> hex SHA-256 of each secret that opens its gate."""

    @classmethod
    def of(cls, key: RunKey, stored: Mapping[bytes, bytes]) -> Order:
        """The order of a hash that is there."""
        text = {name.decode(): value for name, value in stored.items()}
        return cls(
            run=Run.of(key, text.get("name", b"").decode()),
            revision=int(text["rev"]),
            definition=_definition(text.get("definition", b"")),
            tenant=text.get("tenant", b"").decode(),
            queue=text.get("queue", b"").decode(),
            input=text.get("input", NULL),
            digest=text.get("digest", b"").decode(),
            tags=tuple(orjson.loads(text.get("tags", b"[]"))),
            bucket=text.get("bucket", b"").decode(),
            ended_ms=int(text["ended"]) if "ended" in text else None,
            logs=int(text.get("logs", b"0")),
            dropped=int(text.get("dropped", b"0")),
            hits={name.removeprefix(HIT): value for name, value in text.items() if name.startswith(HIT)},
            waits={name.removeprefix(WAIT): value.decode() for name, value in text.items() if name.startswith(WAIT)},
            secrets={
                name.removeprefix(SECRETS): frozenset(value.decode().split())
                for name, value in text.items()
                if name.startswith(SECRETS)
            },
        )

    def fields(self) -> dict[str, bytes]:
        """What `Journal.open` writes for it; name, digest and revision are written by the store."""
        fields = {
            "tenant": self.tenant.encode(),
            "queue": self.queue.encode(),
            "definition": self.definition.SerializeToString(deterministic=True),
            "input": self.input,
            "tags": orjson.dumps(self.tags),
        }
        if self.bucket:
            fields["bucket"] = self.bucket.encode()
        fields.update({f"{SECRETS}{step}": " ".join(sorted(hashes)).encode() for step, hashes in self.secrets.items()})
        return fields


@lru_cache(maxsize=256)
def _definition(stored: bytes) -> Flow:
    """Runs of a flow mostly have the same one."""
    return Flow.FromString(stored)


async def read_many(clients: RedisClients, runs: Sequence[RunKey]) -> list[Order | None]:
    """The orders of these runs; None where there is none (any more). Raises `UNAVAILABLE`."""
    found: list[Order | None] = []
    for start in range(0, len(runs), _PAGE):
        page = runs[start : start + _PAGE]
        pipe = clients.commands.pipeline(transaction=False)
        for key in page:
            pipe.execute_command("HGETALL", keys.flow(key))
        replies: list[Any] = await pipe.execute()
        found += [Order.of(key, stored) if stored else None for key, stored in zip(page, replies, strict=True)]
    return found


async def read_heads(clients: RedisClients, runs: Sequence[RunKey]) -> list[Order | None]:
    """The same for lists: without definition, input, and what belongs to gates."""
    pipe = clients.commands.pipeline(transaction=False)
    for key in runs:
        pipe.execute_command("HMGET", keys.flow(key), *_HEAD)
    replies: list[Any] = await pipe.execute() if runs else []
    return [
        Order.of(key, {name: value for name, value in zip(_HEAD, values, strict=True) if value is not None})
        if values[0] is not None
        else None
        for key, values in zip(runs, replies, strict=True)
    ]


async def read(clients: RedisClients, key: RunKey) -> Order | None:
    """The order of one run; None where there is none (any more). Raises `UNAVAILABLE`."""
    return (await read_many(clients, [key]))[0]
