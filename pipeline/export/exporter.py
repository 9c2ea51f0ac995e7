"""Turn after turn: how do the streams stand, which segments are due, and those are written.

There is no leader and no lock. Any number of exporters look at the same streams; who writes a segment first has
written it, and the others follow (`pipeline.export.chain`). One partition that fails holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic, time
from typing import Final

from fetchbox.config.v1.config_pb2 import Exporter as Limits
from kernel.errors import FetchboxError
from kernel.log.offsets import parse_id
from kernel.redis.clients import RedisClients
from kernel.telemetry import metrics
from kernel.telemetry.logs import get_logger
from pipeline.export.chain import Chain
from pipeline.export.publishing import LakePublisher
from pipeline.export.rolling import Roll
from pipeline.export.source import SourceLook
from pipeline.export.streams import ExportStreamSource, look_many

_LOOKED_UP: Final = 16
"""Ends of chains that are looked up at the same time."""
_WRITTEN: Final = 3
"""Partitions that are written at the same time: each holds a segment in memory."""
_SLICE: Final = 5.0
"""Seconds after which a partition begins no further segment in a turn: the others wait, and their lag is to be told."""

_log = get_logger("exporter")

Progress = Callable[[int, int], None]
"""Is told how many entries are in the lake by now, and of how many."""


class Exporter:
    """All partitions of all sources."""

    def __init__(
        self, clients: RedisClients, chains: Sequence[Chain], publisher: LakePublisher, limits: Limits
    ) -> None:
        self._clients = clients
        self._chains = chains
        self._publisher = publisher
        self._rolls = {chain: Roll(limits) for chain in chains}

    async def turn(self) -> None:
        """Writes what is due. Raises the first error of the partitions that failed, once the others are done."""
        failures = await self._load()
        looks, unseen = await self._look()
        _tell_lag(looks)
        due = [chain for chain, look in looks.items() if self._is_due(chain, look)]
        failures += unseen + await _each(_WRITTEN, due, _export)
        if due:
            await self._publisher.publish()
        if failures:
            raise failures[0]
        metrics.EXPORT_SUCCESS.set(time())

    async def finish(self, progress: Progress) -> int:
        """Writes everything that is there now, due or not; how many entries that were. Raises like `turn`."""
        failures = await self._load()
        looks, unseen = await self._look()
        counts = {chain: _waiting(chain, look) for chain, look in looks.items()}
        before = sum(chain.written for chain in looks)

        def told() -> int:
            done = sum(chain.written for chain in looks) - before
            progress(done, max(done, sum(counts.values())))
            return done

        async def export(chain: Chain) -> None:
            last = looks[chain].last
            while await chain.step() and not _has(chain, last):
                told()

        failures += unseen + await _each(_WRITTEN, list(looks), export)
        await self._publisher.publish()
        if failures:
            raise failures[0]
        return told()

    async def _load(self) -> list[Exception]:
        unknown = [chain for chain in self._chains if chain.state is None]
        return await _each(_LOOKED_UP, unknown, Chain.load)

    async def _look(self) -> tuple[dict[Chain, SourceLook], list[Exception]]:
        """How the sources stand whose place in the lake is known, and the errors of those that do not tell."""
        places = [(chain, chain.state.position) for chain in self._chains if chain.state]
        streams = [(chain, chain.source, at) for chain, at in places if isinstance(chain.source, ExportStreamSource)]
        found = await look_many(self._clients, [(source, at) for _, source, at in streams])
        told: dict[Chain, SourceLook | FetchboxError] = dict(
            zip((chain for chain, _, _ in streams), found, strict=True)
        )
        for chain, at in places:
            if chain not in told:
                told[chain] = await _looked(chain, at)
        looks = {chain: look for chain, look in told.items() if isinstance(look, SourceLook)}
        for chain, look in looks.items():
            chain.notice(look)
        failures = {chain: look for chain, look in told.items() if isinstance(look, FetchboxError)}
        for chain, error in failures.items():
            _log.warn("export_failed", stream=chain.source.stream, error=error)
        return looks, [*failures.values()]

    def _is_due(self, chain: Chain, look: SourceLook) -> bool:
        return chain.state is not None and self._rolls[chain].is_due(chain.state, look)


async def _looked(chain: Chain, position: str) -> SourceLook | FetchboxError:
    try:
        return await chain.source.look(position)
    except FetchboxError as error:
        return error


async def _export(chain: Chain) -> None:
    """Writes what is there, or as much of it as a turn has time for."""
    until = monotonic() + _SLICE
    while await chain.step() and monotonic() < until:
        pass


def _has(chain: Chain, position: str) -> bool:
    return chain.state is not None and parse_id(chain.state.position) >= parse_id(position)


def _waiting(chain: Chain, look: SourceLook) -> int:
    """How many entries are not in the lake, as far as that is known."""
    added = chain.state.added if chain.state else None
    return 0 if added is None else max(0, look.added - added)


def _tell_lag(looks: dict[Chain, SourceLook]) -> None:
    lags: defaultdict[str, int] = defaultdict(int)
    for chain, look in looks.items():
        lag = look.now_ms - parse_id(look.oldest)[0] if look.oldest else 0
        lags[chain.source.table.topic] = max(lag, lags[chain.source.table.topic])
    for topic, lag in lags.items():
        metrics.EXPORT_LAG.labels(topic=topic).set(lag / 1000)


async def _each(at_once: int, chains: Iterable[Chain], work: Callable[[Chain], Awaitable[object]]) -> list[Exception]:
    """Does something for each partition, a few at a time; the errors of those that failed."""
    gate = asyncio.Semaphore(at_once)

    async def one(chain: Chain) -> Exception | None:
        async with gate:
            try:
                await work(chain)
            except Exception as error:  # noqa: BLE001 - one partition holds up no other; the first error is raised
                _log.warn("export_failed", stream=chain.source.stream, error=error)
                return error
        return None

    results = await asyncio.gather(*(one(chain) for chain in chains))
    return [error for error in results if error is not None]
