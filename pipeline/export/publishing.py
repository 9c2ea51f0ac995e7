"""Tells Redis how far the lake has come, so that retention waits for it, and hears there of other exporters.

What Redis holds is a hint and no state: who is behind looks into the lake. Where that does not have it, as it is
another lake (a new bucket, or prefix), the hint is replaced: retention would never pass it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.log.exported import Exported
from pipeline.export.chain import Chain

INTERVAL: float = 2.0
"""Seconds between two notes. Retention takes an exporter for gone after `exporter.hold`, which is much longer."""


class LakePublisher:
    """The positions of all partitions."""

    def __init__(self, chains: Sequence[Chain], exported: Exported) -> None:
        self._chains = chains
        self._exported = exported

    async def publish(self) -> None:
        """Notes the position of each partition that has been looked up. Raises `UNAVAILABLE`."""
        noted = {
            chain.source.stream: (chain.state.position, chain.state.epoch) for chain in self._chains if chain.state
        }
        if not noted:
            return
        denied = {chain.source.stream: chain.denied for chain in self._chains if chain.denied}
        standing = await self._exported.note_many(noted, denied)
        for chain in self._chains:
            if chain.source.stream in standing:
                chain.hear(*standing[chain.source.stream])
