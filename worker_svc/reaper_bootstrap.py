"""The composition root of the role `reaper`: it looks after the priority lists and runs no job.

Every worker does the same beside its work; a process of its own is for those who run foreign workers only, or who want
the queues watched while no worker runs.
"""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.labels import configure_labels
from kernel.lists.duties import list_duties
from kernel.resources import Resources
from kernel.service import Service


async def build(config: Config, resources: Resources) -> Service:
    """The service, not yet started."""
    configure_labels(config)
    return Service("reaper", list_duties(config, resources, resources.clock))
