"""Replays: a dead letter's task goes back on its stream, once, however often it is asked for.

Two steps make a replay. The ledger raises the resource's replay number and opens its job again; then the task is added
under that number, which happens only once for each number. A crash between the two leaves a number without a task:
the next request finds it `already_replayed`, adds the missing task, and so finishes what the first one began.
The letter stays where it is, as the history of the task, until it is purged or its retention ends. Here for the
resources of fetch jobs; `task_replays.py` does the same for task jobs.
"""

from collections.abc import AsyncIterator, Callable

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, QueuedTask
from fetchbox.operator.v1.operator_service_pb2 import (
    ReplayDeadLettersRequest,
    ReplayDeadLettersResponse,
    ReplayOutcome,
)
from kernel.breakers import Breakers, names
from kernel.errors import FetchboxError, Violation, invalid
from kernel.hosts import site_of, site_of_url
from kernel.ledger import Ledger
from kernel.log.topics import Topics
from kernel.queue.announcements import Announcer
from kernel.redis import keys
from kernel.telemetry import metrics
from operator_svc import dead_letters
from operator_svc.letter_streams import DeadLetters, Letter, job_of
from operator_svc.task_replays import TaskReplays

MAX_LETTERS = 500
_NO_CAP = 0
"""What waives the cap in the ledger; as a setting, 0 permits no replay without `force`."""
_REPLAYED = "replayed"
_ALREADY = "already_replayed"
_TOO_MANY = "too_many_replays"
_OF_FLOW = "of_flow"


class Replays:
    """Puts dead letters back."""

    def __init__(
        self,
        letters: DeadLetters,
        ledger: Ledger,
        topics: Topics,
        announcer: Announcer,
        max_replays: int,
        breakers: Breakers | None = None,
    ) -> None:
        """`breakers` are those of hosts, which a replay by host closes."""
        self._breakers = breakers
        self._letters = letters
        self._tasks = TaskReplays(letters, ledger)
        self._ledger = ledger
        self._topics = topics
        self._announcer = announcer
        self._max_replays = max_replays

    async def replay(self, request: ReplayDeadLettersRequest) -> ReplayDeadLettersResponse:
        """Replays at most 500 letters. `INVALID_PAYLOAD` where none is named, `NOT_FOUND` where nothing matches."""
        if not request.positions and not request.job_id and not request.host:
            rule = Violation("positions", "must name letters, unless job_id or host does")
            raise invalid("Name what to replay: positions, job_id or host.", [rule])
        outcomes = self._positions(request) if request.positions else self._matching(request)
        return ReplayDeadLettersResponse(outcomes=[outcome async for outcome in outcomes])

    async def _positions(self, request: ReplayDeadLettersRequest) -> AsyncIterator[ReplayOutcome]:
        places = [dead_letters.parse(text, f"positions[{i}]") for i, text in enumerate(request.positions)]
        jobs: dict[str, None] = {}
        for partition, entry in places:
            letter = await self._letters.get(partition, entry)
            if letter is None or letter.message is None:
                yield ReplayOutcome(position=f"{partition}:{entry}", outcome="not_found")
                continue
            yield await self._one(letter, letter.message, force=request.force)
            jobs[job_of(letter.message)] = None
        for job_id in jobs:
            await self._announcer.announce(job_id)

    async def _matching(self, request: ReplayDeadLettersRequest) -> AsyncIterator[ReplayOutcome]:
        """The letters of a job or host. Those replayed before come last, while there is room: a next call gets on."""
        already: list[ReplayOutcome] = []
        told = 0
        ids: set[str] = set()
        jobs: dict[str, None] = {}
        wanted = self._wanted(request)
        if request.host and self._breakers is not None:
            await self._breakers.reset(names.of_host(site_of(request.host)))
        for partition in dead_letters.partitions_of(self._letters, request.job_id):
            async for letter in dead_letters.forwards(self._letters, partition):
                message = letter.message
                if message is None or not wanted(message) or message.id in ids or told == MAX_LETTERS:
                    continue
                ids.add(message.id)
                jobs[job_of(message)] = None
                outcome = await self._one(letter, message, force=request.force)
                if outcome.outcome == _ALREADY:
                    already.append(outcome)
                else:
                    told += 1
                    yield outcome
        if not ids:
            whose = f"job {request.job_id}" if request.job_id else f"host {request.host}"
            raise FetchboxError(errors_pb2.REASON_NOT_FOUND, f"The {whose} has no dead letters to replay.")
        for outcome in already[: MAX_LETTERS - told]:
            yield outcome
        for job_id in jobs:
            await self._announcer.announce(job_id)

    @staticmethod
    def _wanted(request: ReplayDeadLettersRequest) -> Callable[[DeadLetterTask], bool]:
        host = site_of(request.host) if request.host else ""

        def wanted(message: DeadLetterTask) -> bool:
            if request.job_id and job_of(message) != request.job_id:
                return False
            if host and not (message.HasField("task") and site_of_url(message.task.url) == host):
                return False
            return not request.failure_code or message.failure_code == request.failure_code

        return wanted

    async def _one(self, letter: Letter, message: DeadLetterTask, *, force: bool) -> ReplayOutcome:
        if message.HasField("task"):
            outcome, number = await self._download(letter, message.task, force=force)
        elif message.HasField("queued_task"):
            outcome, number = await self._queued(letter, message.queued_task, force=force)
        elif message.id.startswith(f"{keys.QUEUE}/"):
            outcome, number = await self._tasks.fields(message), 1
        else:
            outcome, number = await self._bytes(letter, message), 1
        metrics.REPLAYS.labels(outcome).inc()
        return ReplayOutcome(position=dead_letters.position(letter), outcome=outcome, replay=number)

    async def _queued(self, letter: Letter, task: QueuedTask, *, force: bool) -> tuple[str, int]:
        if task.flow:
            return _OF_FLOW, task.replay
        cap = _NO_CAP if force else self._max_replays
        if cap == _NO_CAP and not force:
            return _TOO_MANY, task.replay
        return await self._tasks.replay(task, cap, letter.traceparent)

    async def _download(self, letter: Letter, task: DownloadTask, *, force: bool) -> tuple[str, int]:
        cap = _NO_CAP if force else self._max_replays
        if cap == _NO_CAP and not force:
            return _TOO_MANY, task.replay
        outcome, number = await self._ledger.replay(
            task.job_id, task.resource_id, task.resource_index, task.replay, cap
        )
        if outcome not in {_REPLAYED, _ALREADY}:
            return outcome, number
        again = DownloadTask()
        again.CopyFrom(task)
        again.attempt, again.replay = 0, number
        once = f"{task.job_id}/{task.resource_id}/{number}"
        lane = keys.stream(keys.TASKS, self._topics.tasks.partition_of(task.job_id))
        added = await self._letters.republish(
            once, lane, again.SerializeToString(), recorded=True, traceparent=letter.traceparent
        )
        return (_REPLAYED if added else _ALREADY), number

    async def _bytes(self, letter: Letter, message: DeadLetterTask) -> str:
        """Puts an entry that nobody could decode back where it was, byte for byte."""
        lanes = {keys.stream(keys.TASKS, partition) for partition in range(self._topics.tasks.partitions)}
        origin = message.id.rpartition("/")[0]
        lane = origin if origin in lanes else keys.stream(keys.TASKS, 0)
        added = await self._letters.republish(message.id, lane, message.undecodable, traceparent=letter.traceparent)
        return _REPLAYED if added else _ALREADY
