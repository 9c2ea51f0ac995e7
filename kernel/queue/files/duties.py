"""What has to be done about the priority lists, whoever works on them: in every worker and in the role `reaper`."""

from __future__ import annotations

from fetchbox.config.v1 import config_pb2
from kernel.clock import Clock
from kernel.durations import seconds
from kernel.queue.files.audit import ListAudit
from kernel.queue.files.keeper import ListKeeper
from kernel.queue.files.reaper import ListReaper
from kernel.queue.files.sampler import QueueSampler
from kernel.service.resources import Resources
from kernel.service.service import Duty, Periodic
from kernel.telemetry import metrics

_KEEP_SECONDS = 10.0
_PASS_JITTER = 0.25
"""Reapers of a fleet must not pass at the same time."""


def list_duties(config: config_pb2.Config, resources: Resources, clock: Clock) -> list[Duty]:
    """The reaper with its audit, the keeper of the lists that grow, and the sampler of the queues.

    Any number of processes may have them at once.
    """
    redis = resources.redis
    pause = seconds(config.reaper.interval)
    reaper = ListReaper(redis, config, clock)
    passes = Periodic("lists.reaper", pause, reaper.run, clock, _PASS_JITTER)
    began = clock.monotonic()
    metrics.REAPER_PASS_AGE.set_function(lambda: clock.monotonic() - (passes.last_success or began))
    return [
        passes,
        Periodic("lists.audit", pause, ListAudit(redis, config, clock, reaper.visit).run, clock, _PASS_JITTER),
        Periodic("lists.keeper", _KEEP_SECONDS, ListKeeper(redis, config).run, clock),
        Periodic(
            "lists.sampler", seconds(config.observability.queue_sample_interval), QueueSampler(redis, config).run, clock
        ),
    ]
