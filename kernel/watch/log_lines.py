"""The newest log lines of several partitions in one blocking read, whoever watches."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from fetchbox.jobs.jobs_pb2 import JobLog
from kernel.log.topics import Received
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.watch.feed import News
from kernel.watch.reading import Row, StreamRead


class LineSource:
    """Reads `jobs.logs` for a feed; its channels are partitions. Undecodable entries are left out."""

    def __init__(self, clients: RedisClients, name: str) -> None:
        self._read = StreamRead(clients, name)

    async def read(self, cursors: Mapping[str, str]) -> Mapping[str, News[Received[JobLog]]]:
        """What is new, by partition."""
        names = {keys.stream(keys.LOGS, int(partition)): partition for partition in cursors}
        found = await self._read.read(dict(zip(names, cursors.values(), strict=True)))
        return {names[name]: (rows[-1][0].decode(), _lines(names[name], rows)) for name, rows in found.items()}

    async def interrupt(self) -> None:
        """Ends the wait of a read."""
        await self._read.interrupt()

    def close(self) -> None:
        """Drops the connection."""
        self._read.close()


def _lines(partition: str, rows: list[Row]) -> list[Received[JobLog]]:
    lines = (_line(int(partition), entry, dict(zip(flat[::2], flat[1::2], strict=True))) for entry, flat in rows)
    return [line for line in lines if line is not None]


def _line(partition: int, entry: bytes, fields: Mapping[bytes, bytes]) -> Received[JobLog] | None:
    try:
        message = JobLog.FromString(fields[b"payload"])
    except (KeyError, DecodeError):
        metrics.UNDECODABLE.labels(keys.LOGS).inc()
        return None
    return Received(partition, entry.decode(), message, fields.get(b"traceparent", b"").decode(errors="replace"))
