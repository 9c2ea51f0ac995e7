"""The composition root of the producer: the only place where its parts meet."""

import asyncio

from fetchbox.config.v1.config_pb2 import Config
from kernel.durations import seconds
from kernel.service.resources import Resources
from kernel.service.service import Service
from producer_svc.directory import Directory
from producer_svc.enqueue import FileQueue
from producer_svc.intake import Intake
from producer_svc.producer import Producer
from producer_svc.reports import Reports
from producer_svc.rules import Rules
from producer_svc.settling import FileSettling
from producer_svc.watcher import Watcher


async def build(config: Config, resources: Resources) -> Service:
    """The producer of one directory, not yet started. The directory may be away: that is reported, and it comes back.

    Raises `ConfigError` where no directory is configured, or a glob cannot be used.
    """
    clock, ending = resources.clock, asyncio.Event()
    rules, reports = Rules(config), Reports()
    directory = Directory(config.producer.scan_dir, rules, reports)
    queue = FileQueue(resources.redis, config, directory.root)
    settling = FileSettling(seconds(config.producer.settle), clock)
    intake = Intake(queue, rules, settling, reports, clock, ending)
    watcher = Watcher(settling.changed)
    producer = Producer(
        directory,
        intake,
        queue,
        settling,
        watcher,
        reports,
        clock,
        interval=seconds(config.producer.scan_interval),
        ending=ending,
    )
    return Service("producer", [producer, watcher])
