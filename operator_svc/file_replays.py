"""Replays of dead file jobs: each goes back onto its queue in one step that also removes it from the list.

Unlike the dead letters of streams it does not stay as history: a file job is in exactly one place (ADR 0008). What is
kept is in the job itself, `replays` and `last_failure`. A replay is asked for by hand and does not ask how long the
queue is.
"""

from fetchbox.operator.v1.operator_service_pb2 import (
    FileReplayOutcome,
    ReplayFileDeadLettersRequest,
    ReplayFileDeadLettersResponse,
)
from kernel.telemetry import metrics
from operator_svc.file_letter_list import MOST, FileLetter, FileLetters
from operator_svc.file_letters import MOST_COUNTED, SCAN_LIMIT

_TOO_MANY = "too_many_replays"
_UNDECODABLE = "undecodable"
_NOT_FOUND = "not_found"


class FileReplays:
    """Puts dead file jobs back."""

    def __init__(self, letters: FileLetters, max_replays: int) -> None:
        self._letters = letters
        self._max_replays = max_replays

    async def replay(self, request: ReplayFileDeadLettersRequest) -> ReplayFileDeadLettersResponse:
        """Replays at most 500 letters: those that are named, or the newest."""
        if request.digests:
            found = await self._letters.find(request.digests)
            named = list(zip(request.digests, found, strict=True))
        else:
            named = [(letter.digest, letter) for letter in await self._newest(request.failure_code)]
        outcomes = [self._refused(digest, letter, force=request.force) for digest, letter in named]
        going = [index for index, outcome in enumerate(outcomes) if not outcome.outcome]
        letters = [letter for _, letter in (named[index] for index in going) if letter]
        for index, word in zip(going, await self._letters.replay(letters), strict=True):
            outcomes[index].outcome = word
        for outcome in outcomes:
            metrics.REPLAYS.labels(outcome.outcome).inc()
        return ReplayFileDeadLettersResponse(outcomes=outcomes)

    async def _newest(self, failure_code: str) -> list[FileLetter]:
        chosen: list[FileLetter] = []
        seen = 0
        async for letter in self._letters.all():
            if len(chosen) == MOST or seen == SCAN_LIMIT:
                break
            seen += 1
            if failure_code in {"", letter.told.code}:
                chosen.append(letter)
        return chosen

    def _refused(self, digest: str, letter: FileLetter | None, *, force: bool) -> FileReplayOutcome:
        """The outcome of what is not tried; without one otherwise."""
        if letter is None:
            return FileReplayOutcome(digest=digest, outcome=_NOT_FOUND)
        if letter.told.job is None:
            return FileReplayOutcome(digest=digest, outcome=_UNDECODABLE)
        done = min(letter.told.job.replays, MOST_COUNTED)
        if done >= self._max_replays and not force:
            return FileReplayOutcome(digest=digest, outcome=_TOO_MANY, replay=done)
        return FileReplayOutcome(digest=digest, replay=min(done + 1, MOST_COUNTED))
