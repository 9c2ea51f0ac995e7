"""Dead file jobs: listed newest first, and purged by hand.

The cursor of a listing is the place of its last letter, counted from the oldest one: what comes meanwhile is newer and
shifts nothing. Where letters are removed meanwhile a page may repeat some; none is missed.
"""

import re

from fetchbox.operator.v1.files_pb2 import FileDeadLetter
from fetchbox.operator.v1.operator_service_pb2 import (
    ListFileDeadLettersRequest,
    ListFileDeadLettersResponse,
    PurgeFileDeadLettersRequest,
    PurgeFileDeadLettersResponse,
)
from kernel import pages, redaction
from kernel.errors import Violation, invalid
from operator_svc.file_letter_list import MOST, FileLetter, FileLetters
from operator_svc.times import timestamp

SCAN_LIMIT = 10_000
"""Letters that one listing looks at; with rare matches the page is short and its token leads on."""
_PLACE = re.compile(r"[0-9]{1,18}")
MOST_COUNTED = 2**32 - 1
"""What an answer can count to; a foreign job may say more."""
_LISTING = "files"
"""Part of each token, so that none of another listing is taken for one."""


class FileLetterOffice:
    """Lists and purges."""

    def __init__(self, letters: FileLetters) -> None:
        self._letters = letters

    async def page(self, request: ListFileDeadLettersRequest) -> ListFileDeadLettersResponse:
        """One page of the letters that match."""
        filters = (_LISTING, request.failure_code)
        size = pages.size(request.page_size)
        answer = ListFileDeadLettersResponse()
        below = _below(pages.cursor(request.page_token, filters))
        seen, last = 0, 0
        async for letter in self._letters.all(below, MOST if request.failure_code else size + 1):
            if len(answer.dead_letters) == size or seen == SCAN_LIMIT:
                answer.next_page_token = pages.token(str(last), filters)
                break
            seen, last = seen + 1, letter.place
            if request.failure_code in {"", letter.told.code}:
                answer.dead_letters.append(self._shown(letter))
        return answer

    async def purge(self, request: PurgeFileDeadLettersRequest) -> PurgeFileDeadLettersResponse:
        """Deletes at most 500 letters. Raises `INVALID_PAYLOAD` for a request that names none."""
        if request.digests:
            found = await self._letters.find(request.digests)
            return PurgeFileDeadLettersResponse(purged=await self._letters.purge([one for one in found if one]))
        if not request.all:
            rule = Violation("digests", "must name dead letters, unless `all` is true")
            raise invalid("Name what to purge: digests, or all.", [rule])
        purged = await self._letters.purge(await self._letters.newest(MOST, MOST))
        return PurgeFileDeadLettersResponse(purged=purged, remaining=await self._letters.count() > 0)

    def _shown(self, letter: FileLetter) -> FileDeadLetter:
        """A letter without its secrets; of an entry that is no job nothing but its digest is shown."""
        job, code, message, failed_at_ms = letter.told
        entry = FileDeadLetter(
            digest=letter.digest,
            failure_code=code,
            failure_message=redaction.text(message),
            failed_at_ms=failed_at_ms,
            failed_at=timestamp(failed_at_ms),
        )
        if job is not None:
            entry.job_id, entry.filepath, entry.queue = job.id, job.filepath, self._letters.queue_of(job)
            entry.retries, entry.replays = min(job.retries, MOST_COUNTED), min(job.replays, MOST_COUNTED)
        return entry


def _below(cursor: str) -> int | None:
    if not cursor:
        return None
    if not _PLACE.fullmatch(cursor):
        raise pages.refused()
    return int(cursor) - 1
