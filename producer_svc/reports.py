"""What the producer leaves alone, told once for each file: as a metric each time, and as a line of the log at first."""

from __future__ import annotations

import os
from collections import OrderedDict
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger

_log = get_logger("producer")
_REMEMBERED: Final = 20_000
"""Files that were told of; beyond them the oldest may be told of again."""
_LINES: Final = 100
"""Lines about single files in one scan."""


class ScanOutcome(StrEnum):
    """What became of a file, and all values of the label `outcome`."""

    ENQUEUED = "enqueued"
    KNOWN = "known"
    """It was put onto a queue before, as it is."""
    SETTLING = "settling"
    """It may still be written."""
    GONE = "gone"
    UNREADABLE = "unreadable"
    UNREADABLE_DIRECTORY = "unreadable_directory"
    NOT_UTF8 = "not_utf8"
    TOO_LONG = "too_long"
    """Its path is longer than the system lets anyone open."""
    LINK = "link"
    """A symbolic link that leads out of the directory or nowhere."""
    SPECIAL = "special"
    """A socket, a pipe or a device."""


def shown(path: str) -> str:
    """A path as a line of the log can hold it: without control characters, and with bytes that are no UTF-8 escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Reports:
    """Counts everything; writes each problem down once, until the file changes."""

    def __init__(self) -> None:
        self._told: OrderedDict[bytes, None] = OrderedDict()
        self._lines = 0
        self._unsaid = 0

    def count(self, outcome: ScanOutcome, number: int = 1) -> None:
        """Nothing that needs a word."""
        if number:
            metrics.PRODUCER_FILES.labels(outcome).inc(number)

    def problem(self, outcome: ScanOutcome, path: str, state: object = "", error: OSError | None = None) -> None:
        """A file or directory that is left alone; `state` is whatever makes it worth a new line when it changes."""
        self.count(outcome)
        name = os.fsencode(f"{outcome}\0{state}\0{path}")
        digest = blake2b(name, digest_size=12).digest()
        if digest in self._told:
            self._told.move_to_end(digest)
            return
        self._told[digest] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        if self._lines >= _LINES:
            self._unsaid += 1
            return
        self._lines += 1
        said = {"problem": error.strerror} if error is not None and error.strerror else {}
        _log.warn("file_left_alone", reason=str(outcome), path=shown(path), **said)

    def scan_ended(self) -> None:
        """Says how many lines were left out, and lets the next scan write again."""
        if self._unsaid:
            _log.warn("files_left_alone", count=self._unsaid, problem="more than were told of one by one")
        self._lines = self._unsaid = 0
