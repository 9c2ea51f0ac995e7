"""The composition root of the role `reaper`: it looks after the priority lists and runs no job.

Every worker does the same beside its work; a process of its own is for those who run foreign workers only, or who want
the lists looked after while no worker runs.
"""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import seconds
from kernel.queue.files.duties import list_duties
from kernel.queue.files.names import ListNames
from kernel.queue.files.promoter import Promoter
from kernel.queue.labels import configure_labels
from kernel.redis import scripts
from kernel.redis.link import Link
from kernel.service.resources import Resources
from kernel.service.service import Service


async def build(config: Config, resources: Resources) -> Service:
    """The service, not yet started."""
    configure_labels(config)
    link = Link(resources.redis, "fetchbox-reaper", [scripts.FILE_DUE], seconds(config.redis.read_timeout))
    promoter = _LonePromoter(link, resources, ListNames(config.worker))
    return Service("reaper", [*list_duties(config, resources, resources.clock), promoter])


class _LonePromoter(Promoter):
    """The timer of due file jobs where no lane has one, with a connection of its own."""

    def __init__(self, link: Link, resources: Resources, names: ListNames) -> None:
        super().__init__(link, resources.clock, names, lambda _suspects: None)
        self._own = link

    async def stop(self) -> None:
        """Ends the timer and its connection; safe twice."""
        await super().stop()
        self._own.close()
