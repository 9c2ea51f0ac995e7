"""The tables of the lake, and which messages their rows hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from fetchbox.flow.v1.event_pb2 import Event
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from kernel.redis import keys


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its rows are the entries of one topic, each with the columns of its message behind those of `ENTRY`."""

    name: str
    """As in `lake.{name}` of the configuration, in keys of the lake and in SQL."""
    topic: str
    """What it is exported from."""
    message: type[Message]


TASKS: Final = Table("tasks", keys.TASKS, DownloadTask)
STATUS: Final = Table("status", keys.STATUS, JobStatus)
LOGS: Final = Table("logs", keys.LOGS, JobLog)
DLQ: Final = Table("dlq", keys.DLQ, DeadLetterTask)
FLOWS: Final = Table("flows", "flows", Event)
TABLES: Final = (TASKS, STATUS, LOGS, DLQ, FLOWS)
BY_NAME: Final = {table.name: table for table in TABLES}
