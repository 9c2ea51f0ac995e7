"""The newest log lines of several partitions in one blocking read, whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel import keys
from kernel.log.topics import Received
from kernel.redis import RedisClients
from kernel.telemetry import metrics

_COUNT = 500


class LogTail:
    """Waits for lines of `jobs.logs`."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients

    async def wait(self, cursors: Mapping[int, str], block_ms: int) -> dict[int, tuple[str, list[Received[JobLog]]]]:
        """What follows each partition's cursor: the new cursor, and the lines. Undecodable entries are left out.

        Waits up to `block_ms` (at most 30,000) for the first; an empty answer means that nothing came.
        """
        if not cursors:
            return {}
        names = {keys.stream(keys.LOGS, partition): partition for partition in cursors}
        reply = await self._clients.blocking.xread(
            dict(zip(names, cursors.values(), strict=True)), count=_COUNT, block=max(1, block_ms)
        )
        rows = reply.items() if isinstance(reply, dict) else reply or []
        found: dict[int, tuple[str, list[Received[JobLog]]]] = {}
        for name, entries in rows:
            partition = names[_text(name)]
            flat = _flat(entries)
            found[partition] = (_text(flat[-1][0]), [line for row in flat if (line := _line(partition, *row))])
        return found


def _flat(entries: list[Any]) -> list[Any]:
    """The entries of one stream; some reply shapes nest them once more."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _line(partition: int, entry: bytes, fields: Mapping[bytes, bytes]) -> Received[JobLog] | None:
    try:
        message = JobLog.FromString(fields[b"payload"])
    except (KeyError, DecodeError):
        metrics.UNDECODABLE.labels(keys.LOGS).inc()
        return None
    return Received(partition, _text(entry), message, _text(fields.get(b"traceparent", b"")))


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
