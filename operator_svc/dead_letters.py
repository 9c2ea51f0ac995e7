"""Dead letters: listed newest first, and purged by hand.

A position, `{partition}:{ms}-{seq}`, names one letter. Listings merge the partitions by age; nothing is held between
two pages, so letters that are purged meanwhile are simply missing.
"""

from collections.abc import AsyncIterator, Iterable

from fetchbox.operator.v1 import job_pb2
from fetchbox.operator.v1.operator_service_pb2 import (
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    PurgeDeadLettersRequest,
    PurgeDeadLettersResponse,
)
from kernel import pages, redaction
from kernel.errors import Violation, invalid
from kernel.log.offsets import START, parse_id
from kernel.redis import keys
from operator_svc.letter_streams import NEWEST, DeadLetters, Letter, below, job_of
from operator_svc.times import timestamp

CHUNK = 250
SCAN_LIMIT = 10_000
"""Letters that one listing looks at; with rare matches the page is short and its token leads on."""
MAX_PURGE = 500


def position(letter: Letter) -> str:
    """The place of a letter, for people and for later calls."""
    return f"{letter.partition}:{letter.id}"


def parse(text: str, field: str) -> tuple[int, str]:
    """Partition and id of a position. Raises `INVALID_PAYLOAD` naming `field`."""
    partition, _, entry = text.partition(":")
    try:
        parse_id(entry)
        return int(partition), entry
    except ValueError as error:
        rule = Violation(field, "must be a position as a listing shows it: {partition}:{ms}-{seq}")
        raise invalid(f"{field} is no position of a dead letter: {text[:64]!r}", [rule]) from error


def shown(letter: Letter) -> job_pb2.DeadLetter:
    """A letter without its secrets; of a task's payload nothing is shown."""
    message = letter.message
    if message is None:
        return job_pb2.DeadLetter(id=position(letter), position=position(letter))
    entry = job_pb2.DeadLetter(
        id=message.id,
        position=position(letter),
        job_id=job_of(message),
        failure_code=message.failure_code,
        failure_message=redaction.text(message.failure_message),
        attempts=message.attempts,
        failed_at=timestamp(message.failed_at_ms),
    )
    if message.HasField("queued_task"):
        queued = message.queued_task
        entry.job_type = entry.task = queued.task
        entry.tenant, entry.replay = queued.tenant, queued.replay
    else:
        task = message.task
        entry.resource_id, entry.job_type, entry.url = task.resource_id, task.job_type, redaction.url(task.url)
        entry.tenant, entry.replay = task.tenant, task.replay
    return entry


class DeadLetterOffice:
    """Lists and purges."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    async def page(self, request: ListDeadLettersRequest) -> ListDeadLettersResponse:
        """One page of the letters that match."""
        filters = (request.job_id, request.failure_code)
        size = pages.size(request.page_size)
        answer = ListDeadLettersResponse()
        seen, last = 0, ""
        async for letter in self._newest_first(request.job_id, pages.cursor(request.page_token, filters)):
            if len(answer.dead_letters) == size or seen == SCAN_LIMIT:
                answer.next_page_token = pages.token(last, filters)
                break
            seen, last = seen + 1, position(letter)
            if _matches(letter, request.job_id, request.failure_code):
                answer.dead_letters.append(shown(letter))
        return answer

    async def _newest_first(self, job_id: str, cursor: str) -> AsyncIterator[Letter]:
        after = parse(cursor, "page_token") if cursor else None
        streams = [self._backwards(p, _bound(p, after)) for p in partitions_of(self._letters, job_id)]
        heads = {stream: letter for stream in streams if (letter := await anext(stream, None))}
        while heads:
            newest = max(heads, key=lambda stream: (parse_id(heads[stream].id), heads[stream].partition))
            yield heads[newest]
            if (following := await anext(newest, None)) is not None:
                heads[newest] = following
            else:
                del heads[newest]

    async def _backwards(self, partition: int, before: str) -> AsyncIterator[Letter]:
        while chunk := await self._letters.newest(partition, before, CHUNK):
            for letter in chunk:
                yield letter
            before = chunk[-1].id

    async def purge(self, request: PurgeDeadLettersRequest) -> PurgeDeadLettersResponse:
        """Deletes at most 500 letters. Raises `INVALID_PAYLOAD` for a request that names none."""
        if request.positions:
            places = [parse(text, f"positions[{index}]") for index, text in enumerate(request.positions)]
            return PurgeDeadLettersResponse(purged=await self._delete(places))
        if not request.job_id and not request.before_ms:
            rule = Violation("positions", "must name letters, unless job_id or before_ms does")
            raise invalid("Name what to purge: positions, job_id or before_ms.", [rule])
        places, remaining = await self._matching(request.job_id, request.before_ms)
        return PurgeDeadLettersResponse(purged=await self._delete(places), remaining=remaining)

    async def _matching(self, job_id: str, before_ms: int) -> tuple[list[tuple[int, str]], bool]:
        found: list[tuple[int, str]] = []
        for partition in partitions_of(self._letters, job_id):
            async for letter in forwards(self._letters, partition):
                if not _matches(letter, job_id) or (before_ms and _failed_ms(letter) >= before_ms):
                    continue
                if len(found) == MAX_PURGE:
                    return found, True
                found.append((partition, letter.id))
        return found, False

    async def _delete(self, places: Iterable[tuple[int, str]]) -> int:
        by_partition: dict[int, list[str]] = {}
        for partition, entry in places:
            if 0 <= partition < self._letters.partitions:
                by_partition.setdefault(partition, []).append(entry)
        return sum([await self._letters.delete(partition, entries) for partition, entries in by_partition.items()])


async def forwards(letters: DeadLetters, partition: int) -> AsyncIterator[Letter]:
    """The letters that a partition holds now, oldest first; those that come meanwhile are left out."""
    newest = await letters.newest(partition, NEWEST, 1)
    last = parse_id(newest[0].id) if newest else (0, 0)
    after = START
    while chunk := await letters.oldest(partition, after, CHUNK):
        for letter in chunk:
            if parse_id(letter.id) > last:
                return
            yield letter
        after = chunk[-1].id


def partitions_of(letters: DeadLetters, job_id: str) -> Iterable[int]:
    """Where letters of a job may be; everywhere for no job."""
    return (keys.partition_of(job_id, letters.partitions),) if job_id else range(letters.partitions)


def _bound(partition: int, after: tuple[int, str] | None) -> str:
    if after is None:
        return NEWEST
    # Letters of the same millisecond and sequence are ordered by partition, the highest first.
    return below(after[1]) if partition < after[0] else after[1]


def _matches(letter: Letter, job_id: str, failure_code: str = "") -> bool:
    message = letter.message
    if message is None:
        return not job_id and not failure_code
    return (not job_id or job_of(message) == job_id) and (not failure_code or message.failure_code == failure_code)


def _failed_ms(letter: Letter) -> int:
    if letter.message is not None and letter.message.failed_at_ms:
        return letter.message.failed_at_ms
    return parse_id(letter.id)[0]
