"""What comes with a release and is too large for an event: it lies in the object store, and the event names its key."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from fetchbox.config.v1.config_pb2 import FlowEngine
from flows.gates.deliveries import By, Hit
from flows.model.codec import iso
from kernel import places
from kernel.clock import Clock
from kernel.durations import millis
from kernel.objects import ObjectStore, ObjectStoreError, s3_uri
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.redis.keys import RunKey
from kernel.telemetry.logs import get_logger

_log = get_logger("flows.payloads")

_ENVELOPE: Final = 2048
"""Bytes of an event beside the payload: names, ids, times, a token."""
SHARED: Final = "deliveries/"
"""What the keys of payloads begin with that are of no one run; a run that one opens a gate of gets its own copy."""
_DAY_MS: Final = 24 * 3600 * 1000
_LONGEST_AWAY_MS: Final = 30 * _DAY_MS
"""How long engines may be away before they make that copy, at least."""
_LENGTH_OF_DATE: Final = len("2025-10-28")
_SPACE: Final = b" \t\n\r"
_PAGE: Final = 1000


class Payloads:
    """Makes hits of what was delivered."""

    def __init__(self, clients: RedisClients, objects: ObjectStore, config: FlowEngine, clock: Clock) -> None:
        self._clients = clients
        self._objects = objects
        self._clock = clock
        self._most = config.max_event_bytes - _ENVELOPE
        self._kept_ms = millis(config.parked_ttl) + max(2 * millis(config.retention), _LONGEST_AWAY_MS)

    async def hit(self, by: By, payload: bytes | None, run: RunKey = keys.NO_RUN, step_key: str = "") -> Hit:
        """The hit of a payload, which is JSON and kept as it is, but for white space around it.

        The same payload for the same gate gives the same hit. `run` and `step_key`: the gate, where it is known; its
        object lies with those of the run, in the bucket that its order names. Else the hit names the bucket.
        `UNAVAILABLE` where the object store does not answer.
        """
        payload = payload.strip(_SPACE) if payload is not None else None
        if payload is None or len(payload) <= self._most:
            return Hit(by, payload)
        folder = f"{places.flow(*keys.run_parts(run))}{step_key}/" if run else f"{SHARED}{self._date()}/"
        key = f"{folder}{sha256(payload).hexdigest()}.json"
        place = await self._bucket_of(run) if run else await self._shared_bucket()
        await self._objects.put(place, key, payload, content_type="application/json")
        return Hit(by, payload_key=key if run else s3_uri(place, key))

    async def tidy(self) -> int:
        """Deletes payloads of no one run that nobody can want any more; how many.

        They are kept as long as they may be parked, and twice the `retention` of runs (30 days at least) behind that,
        in each bucket that some were stored in. At most a thousand a bucket are looked at: come again.
        """
        today = await self._shared_bucket()
        recorded = await self._clients.commands.execute_command("ZRANGE", keys.FLOW_PAYLOADS, 0, -1)
        removed = await self._tidy(today)
        for bucket in {name.decode() for name in recorded} - {today}:
            try:
                removed += await self._tidy(bucket)
            except ObjectStoreError as error:
                # A bucket that is gone, or no more ours, holds up no other.
                _log.warn("flow_payloads_not_tidied", bucket=bucket, error=error)
        if not removed:
            await self._forget_buckets()
        return removed

    async def _tidy(self, bucket: str) -> int:
        first_kept = f"{SHARED}{self._date(self._kept_ms)}/"
        found = await self._objects.list(bucket, SHARED, limit=_PAGE)
        stale = [stored.key for stored in found if stored.key < first_kept]
        for key in stale:
            await self._objects.delete(bucket, key)
        return len(stale)

    async def _forget_buckets(self) -> None:
        """Those that were last used so long ago that all in them was stale, now that nothing stale is left."""
        last_used = self._clock.now_ms() - self._kept_ms - _DAY_MS
        await self._clients.commands.execute_command("ZREMRANGEBYSCORE", keys.FLOW_PAYLOADS, "-inf", last_used)

    async def _bucket_of(self, run: RunKey) -> str:
        """That of the order of a run; today's for one of an older release."""
        recorded: bytes | None = await self._clients.commands.execute_command("HGET", keys.flow(run), "bucket")
        return (recorded or b"").decode() or self._objects.bucket

    async def _shared_bucket(self) -> str:
        """Today's bucket, recorded so that what lies there is found and deleted after the configuration has changed."""
        bucket = self._objects.bucket
        await self._clients.commands.execute_command("ZADD", keys.FLOW_PAYLOADS, self._clock.now_ms(), bucket)
        return bucket

    def _date(self, ago_ms: int = 0) -> str:
        return iso(self._clock.now_ms() - ago_ms)[:_LENGTH_OF_DATE]
