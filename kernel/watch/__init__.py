"""Watching live: the events of jobs and other streams, from what there is on to what comes, for any number of clients.

Every service that has watchers gives them one `Feed` a kind of stream, which is one connection to Redis, and
`JobWatches` for the events of jobs.
"""

from kernel.watch.beginning import Beginning
from kernel.watch.dropping import dropper
from kernel.watch.feed import Feed, FeedSource, FellBehindError, News, Subscription
from kernel.watch.jobs import EventSource, JobWatches
from kernel.watch.reading import StreamRead
from kernel.watch.streams import StreamSource

__all__ = [
    "Beginning",
    "EventSource",
    "Feed",
    "FeedSource",
    "FellBehindError",
    "JobWatches",
    "News",
    "StreamRead",
    "StreamSource",
    "Subscription",
    "dropper",
]
