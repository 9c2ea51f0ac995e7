"""Which files are taken, and with which priority."""

from __future__ import annotations

from fetchbox.config.v1.config_pb2 import Config
from kernel.queue.files.names import ListNames
from producer_svc.globs import Globs


class Rules:
    """The rules of the configuration; paths are relative to the scanned directory."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` for a glob that cannot be used."""
        names, producer = ListNames(config.worker), config.producer
        self._include = Globs("producer.include_globs", producer.include_globs)
        self._exclude = Globs("producer.exclude_globs", producer.exclude_globs)
        self._high = tuple(f".{extension.lower().removeprefix('.')}" for extension in producer.high_priority_exts)
        self._first = names.priorities[0]
        self._default = producer.default_priority
        self.priorities = names.priorities
        """The highest first."""
        self._queues = {priority: names.queue_of("", priority) for priority in names.priorities}

    def excludes(self, path: str, name: str) -> bool:
        """Whether a file or directory is left alone, with all that is below it."""
        return self._exclude.match(path, name)

    def includes(self, path: str, name: str) -> bool:
        """Whether a file is one that is asked for."""
        return not self._include or self._include.match(path, name)

    def takes(self, path: str) -> bool:
        """Whether a file is taken, seen from the top: neither it nor a directory above it is excluded."""
        return self.enters(path) and self.includes(path, path.rpartition("/")[2])

    def enters(self, path: str) -> bool:
        """Whether a directory is looked through, seen from the top: neither it nor one above it is excluded."""
        parts = path.split("/")
        above = ("/".join(parts[: number + 1]) for number in range(len(parts)))
        return not any(self.excludes(one, part) for one, part in zip(above, parts, strict=True))

    def priority(self, name: str) -> str:
        """The priority of a file, by its extension in whatever case; a name that is nothing else has none."""
        lower = name.lower()
        high = any(len(lower) > len(extension) and lower.endswith(extension) for extension in self._high)
        return self._first if high else self._default

    def queue(self, priority: str) -> str:
        """The list of a priority."""
        return self._queues[priority]
