"""The dead letters of file jobs as operators need them: newest first, put back once, deleted by hand.

An entry of the list is named by its SHA-1, and found again by its place: how many entries stand behind it, itself
included, so that what comes meanwhile, at the front, moves none. What is removed behind an entry does; a script that
finds another entry in a place leaves it alone, and the caller looks for it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

from fetchbox.config.v1 import config_pb2
from fetchbox.errors.v1 import errors_pb2 as codes
from kernel.errors import failure_name
from kernel.queue.files.names import ListNames
from kernel.queue.work.file_job import FileJob, JobError, read, time_text, with_members, without_members
from kernel.redis import keys
from kernel.redis.clients import Arg, RedisClients, is_other_kind
from kernel.redis.scripts import FILE_PURGE, FILE_REPLAY, Script

MOST: Final = 500
"""Letters of one call."""
_PART: Final = 100
"""Letters that one script touches: what it marks is far from the ends of a long list, and nobody else is served."""
_KEEP_MS: Final = 60_000
"""How long a call may be repeated after a lost reply; the client gives up long before."""
_ROUNDS: Final = 3
"""How often letters are looked for which others have moved meanwhile."""
_CRASH_LOOP: Final = failure_name(codes.FAILURE_CODE_SYSTEM_CRASH_LOOP)
_UNDECODABLE: Final = failure_name(codes.FAILURE_CODE_VALIDATION_UNDECODABLE)
_LONGEST_CODE: Final = 64
_LONGEST_MESSAGE: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_402_300_800_000
"""The year 10,000, which no date can name."""
_MOVED: Final = "m"
_NO_QUEUE: Final = "n"


class Told(NamedTuple):
    """What an entry says of itself."""

    job: FileJob | None
    """None where the entry is no job."""
    code: str
    message: str
    failed_at_ms: int
    """0 where the entry does not tell."""


@dataclass(frozen=True)
class FileLetter:
    """One entry of the list. It is read only where somebody asks: most are merely passed on the way to another one."""

    place: int
    """From 1 for the oldest."""
    payload: bytes
    digest: str
    """SHA-1 of the payload, 40 hex digits."""

    @cached_property
    def told(self) -> Told:
        """What is in it."""
        return _told(self.payload)

    def again(self) -> bytes:
        """The job as it goes back: all its retries before it, one replay more, its last failure as its history."""
        job, code, message, failed_at_ms = self.told
        at = time_text(failed_at_ms * 1_000_000) if failed_at_ms else ""
        last = {"code": code, "message": message, "failed_at": at}
        plain = without_members(self.payload, "failure", "failed_at")
        return with_members(plain, retries=0, replays=(job.replays if job else 0) + 1, last_failure=last)


class FileLetters:
    """The list `worker.dead_letter_list`. Every method raises `UNAVAILABLE` where Redis does not answer."""

    def __init__(self, clients: RedisClients, config: config_pb2.Config) -> None:
        self._names = ListNames(config.worker)
        self._clients = clients

    def queue_of(self, job: FileJob) -> str:
        """Where a job goes back to."""
        return self._names.queue_of(job.origin_queue, job.priority)

    async def count(self) -> int:
        """How many there are; 0 where the key is no list."""
        return int(await self._asked("LLEN") or 0)

    async def newest(self, below: int, limit: int) -> list[FileLetter]:
        """Up to `limit` letters in the places from `below` downwards, the newest first."""
        if below < 1:
            return []
        found = await self._asked("LRANGE", -below, -max(1, below - limit + 1)) or []
        # Where fewer are left than `below`, Redis begins with the newest: the last one is in the last place asked for.
        last = max(1, below - limit + 1)
        return [_letter(last + len(found) - 1 - index, payload) for index, payload in enumerate(found)]

    async def find(self, digests: Sequence[str]) -> list[FileLetter | None]:
        """The letter of each digest, the newest of its kind; of a digest that is there twice, two. None: not there."""
        wanted = Counter(digests)
        found: dict[str, list[FileLetter]] = {}
        async for letter in self.all():
            if wanted[letter.digest] > 0:
                wanted[letter.digest] -= 1
                found.setdefault(letter.digest, []).append(letter)
                if not +wanted:
                    break
        return [found[digest].pop(0) if found.get(digest) else None for digest in digests]

    async def all(self, below: int | None = None, part: int = MOST) -> AsyncIterator[FileLetter]:
        """The letters from a place downwards, by default those that there are now; none that comes meanwhile.

        They are read `part` by `part`. Where some are removed meanwhile, others may come twice, but none is missed.
        """
        there = await self.count()
        below = there if below is None else min(below, there)
        while below > 0:
            for letter in await self.newest(below, part):
                yield letter
            below -= part

    async def replay(self, letters: Sequence[FileLetter]) -> list[str]:
        """Puts jobs back onto their queues, the oldest first: `replayed`, `not_found` or `no_queue` for each.

        None may be undecodable.
        """

        def item(letter: FileLetter) -> tuple[Arg, ...]:
            job = letter.told.job
            number = self._names.queues.index(self.queue_of(job)) + 1 if job else 1
            return (number, letter.again())

        words = await self._tried(FILE_REPLAY, self._names.queues, letters, item)
        said = {_MOVED: "replayed", _NO_QUEUE: "no_queue"}
        return [said.get(word, "not_found") for word in words]

    async def purge(self, letters: Sequence[FileLetter]) -> int:
        """Deletes letters; how many were there."""
        words = await self._tried(FILE_PURGE, (), letters, lambda _: ())
        return words.count(_MOVED)

    async def _tried(
        self,
        script: Script,
        queues: Sequence[str],
        letters: Sequence[FileLetter],
        item: Callable[[FileLetter], tuple[Arg, ...]],
    ) -> list[str]:
        """A word for each letter, the oldest first; those that have moved meanwhile are looked for again."""
        words: dict[int, str] = {}
        open_ = dict(enumerate(letters))
        for _ in range(_ROUNDS):
            order = sorted(open_, key=lambda index: open_[index].place)
            moved = 0
            for start in range(0, len(order), _PART):
                part = [(index, open_[index]) for index in order[start : start + _PART]]
                args = [arg for _, one in part for arg in (one.place - moved, one.digest, *item(one))]
                answer = await self._call(script, queues, args)
                words.update(zip((index for index, _ in part), answer, strict=True))
                moved += answer.count(_MOVED)
            gone = [index for index in open_ if words[index] not in {_MOVED, _NO_QUEUE}]
            again = await self.find([open_[index].digest for index in gone]) if gone else []
            open_ = {index: letter for index, letter in zip(gone, again, strict=True) if letter}
            if not open_:
                break
        return [words[index] for index in range(len(letters))]

    async def _call(self, script: Script, queues: Sequence[str], args: Sequence[Arg]) -> str:
        names = [self._names.dead_letters, keys.file_answer(os.urandom(12).hex()), *queues]
        answer: bytes = await self._clients.call(script, names, [_KEEP_MS, *args])
        return answer.decode()

    async def _asked(self, command: str, *args: Arg) -> Any:
        try:
            return await self._clients.commands.execute_command(command, self._names.dead_letters, *args)
        except Exception as error:
            if not is_other_kind(error):
                raise
            return None


def _letter(place: int, payload: bytes) -> FileLetter:
    return FileLetter(place, payload, hashlib.sha1(payload, usedforsecurity=False).hexdigest())


def _told(payload: bytes) -> Told:
    try:
        job = read(payload)
    except JobError as error:
        return Told(None, _UNDECODABLE, str(error)[:_LONGEST_MESSAGE], 0)
    members = json.loads(payload)
    failure = members.get("failure")
    code, message = (_text(failure, "code"), _text(failure, "message")) if isinstance(failure, dict) else ("", "")
    # What the reaper gave up stands as it was when its last worker died.
    at = _failed_at_ms(members.get("failed_at"))
    return Told(job, code[:_LONGEST_CODE] or _CRASH_LOOP, message[:_LONGEST_MESSAGE], at)


def _text(members: dict[str, Any], name: str) -> str:
    """A member for people; empty where it is no text."""
    value = members.get(name)
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _failed_at_ms(value: object) -> int:
    """A time in RFC 3339, or in ms since the epoch; 0 for anything else."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return 0
        value = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST_MS else 0
