"""Replays of task jobs: a dead letter's task goes back on `jobs:stream`, once for each number.

The two steps are those of `replays.py`: the record is opened under the next number, then its entry is added, once for
that number. Between them the job stands in the outbox, so that the sweep adds the entry where the operator dies. A
record lives only for its TTL after the job's end, a letter for three months: a record that is gone is made again from
the letter. Whether the letter was replayed in that record's lifetime is then told by the name of its entry, which is
kept as long as the letter. A replay is asked for by hand and does not ask whether the backlog is full.
"""

import base64
import binascii

import orjson

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, QueuedTask
from kernel.ledger import Ledger
from operator_svc.letter_streams import DeadLetters

_REPLAYED = "replayed"
_ALREADY = "already_replayed"
_GONE = "gone"


class TaskReplays:
    """Puts tasks back on the queue. Outcomes are those of `ReplayOutcome`."""

    def __init__(self, letters: DeadLetters, ledger: Ledger) -> None:
        self._letters = letters
        self._ledger = ledger

    async def replay(self, task: QueuedTask, cap: int, traceparent: str) -> tuple[str, int]:
        """Replays a task: the outcome and the number of the replay. `cap` 0 waives the cap."""
        outcome, number, created_ms = await self._ledger.replay_task(task, cap)
        if outcome == _GONE:
            if await self._letters.was_requeued(_once(task, task.replay + 1)):
                return _ALREADY, task.replay + 1
            outcome, number, created_ms = await self._ledger.replay_task(task, cap, remake=True)
        if outcome not in {_REPLAYED, _ALREADY}:
            return outcome, number
        added = await self._letters.requeue(
            _once(task, number),
            _entry(task, number, traceparent),
            since_ms=created_ms,
            counted=task.task,
            job_id=task.job_id,
        )
        return (_REPLAYED if added else _ALREADY), number

    async def fields(self, message: DeadLetterTask) -> str:
        """Puts an entry of the queue that nobody could decode back, with the same fields and values."""
        fields = _decoded(message.undecodable)
        if not fields:
            return "not_found"
        return _REPLAYED if await self._letters.requeue(message.id, fields) else _ALREADY


def _once(task: QueuedTask, number: int) -> str:
    return f"{task.job_id}//{number}"


def _entry(task: QueuedTask, number: int, traceparent: str) -> list[str | bytes]:
    entry: list[str | bytes] = ["job_id", task.job_id, "task", task.task, "payload", task.payload]
    entry += ["ledger", "1", "replay", str(number)]
    return [*entry, "traceparent", traceparent] if traceparent else entry


def _decoded(undecodable: bytes) -> list[bytes]:
    """Field, value, ... of a letter; empty where it holds none that an entry can have."""
    try:
        fields = [base64.b64decode(part, validate=True) for part in orjson.loads(undecodable)]
    except (orjson.JSONDecodeError, binascii.Error, TypeError, ValueError):
        return []
    return fields if len(fields) % 2 == 0 else []
