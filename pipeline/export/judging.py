"""Whether a stream goes on where the lake ends: the one place that says what is a gap, and what another past.

Redis counts all entries that a stream was ever given. When a page was read up to the end of the stream, what the lake
has and what the page holds must make up that count. More were given: as many are gone that nobody has read. Fewer: the
stream has another past than the one that was exported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kernel.log.offsets import START, parse_id
from pipeline.export.source import SourceLook, SourcePage
from pipeline.lake.epochs import Reason

OVERLAP_MS: Final = 600_000
"""How much is read again after a failover: a replica that lagged further behind would not have been promoted."""


@dataclass(frozen=True, slots=True)
class State:
    """How far the lake has come with a partition."""

    epoch: int
    position: str
    """Everything of the epoch up to here is in the lake."""
    added: int | None
    """How many entries the stream had ever been given up to `position`; None where that is not known."""
    server: str
    """The replication id of the Redis that was last found to go on with this; empty where that is not known."""
    mean: float = 0.0
    """Bytes of an entry, as the last segment had them."""
    most: int = 0
    """The highest count of entries ever given that this process has seen."""

    def seen(self, look: SourceLook) -> State:
        """After a look. What was gone before the very first entry was read is no loss of the exporter's."""
        added = look.gone if self.added is None and self.position == START and look.counts else self.added
        return replace(self, added=added, most=max(self.most, look.added))


@dataclass(frozen=True, slots=True)
class Break:
    """Why a new epoch is due, and where it begins."""

    reason: Reason
    start: str
    missing: int = 0
    added: int | None = None
    """As in `Marker`."""


def judged(state: State, page: SourcePage) -> Break | None:
    """What a page that was read behind `state.position` says of the past; None where the stream goes on."""
    look, count = page.look, len(page.rows)
    begun = state.position != START
    if begun and (not look.exists or parse_id(look.last) < parse_id(state.position)):
        return Break("rewritten", START, added=look.gone)
    if begun and not look.kept:
        return Break("rewritten", before(state.position))
    if not look.counts:
        return None
    expected = None if state.added is None else state.added + count
    if look.added < max(state.most, expected or 0):
        return Break("rewritten", before(state.position))
    if page.ended and expected is not None and look.added > expected:
        return Break("hole", state.position, look.added - expected, look.added - count)
    return None


def before(position: str) -> str:
    """The position from which is read again, so that nothing that a failover brought back is left out."""
    return f"{max(0, parse_id(position)[0] - OVERLAP_MS)}-0"


def is_doubtful(state: State, look: SourceLook) -> bool:
    """Whether a look gives reason to read, and to judge, although nothing is due."""
    if look.counts and not look.oldest and look.added != state.added:
        return True
    empty = SourcePage((), "", state.position, ended=False, look=look)
    return judged(state, empty) is not None or is_another(state, look)


def is_another(state: State, look: SourceLook) -> bool:
    """Whether another Redis answers than before, or the same after a restart."""
    return bool(state.server and look.server and state.server != look.server)
