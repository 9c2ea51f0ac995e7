"""The tidier: what workers beside FetchBox acknowledged leaves `jobs:stream`, and its status is published.

An acknowledged entry stays in a stream, and counts as backlog, until somebody deletes it. Ours do so themselves, so
mostly there is nothing to do; whether there is, is told by numbers that Redis keeps, without looking at an entry.
"""

from kernel.ledger.leftovers import Leftovers
from kernel.log.backlog import Backlogs


class Tidier:
    """One look after another; each is harmless beside that of another process."""

    def __init__(self, backlogs: Backlogs, leftovers: Leftovers) -> None:
        self._backlogs = backlogs
        self._leftovers = leftovers

    async def run(self) -> int:
        """Deletes what is settled; how many entries' jobs were told of."""
        await self._leftovers.recount()
        if not (await self._backlogs.queue()).settled:
            return 0
        return len(await self._leftovers.clear())
