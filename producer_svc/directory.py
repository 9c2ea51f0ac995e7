"""The directory that is scanned, and what a path below it is now."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from kernel.config.loading import ConfigError
from producer_svc.found import Found, found
from producer_svc.reports import Reports
from producer_svc.rules import Rules
from producer_svc.walk import Walk, is_utf8, tell_irregular


class Directory:
    """The root with its rules."""

    def __init__(self, path: str, rules: Rules, reports: Reports) -> None:
        """Raises `ConfigError` for a path that jobs cannot name. It need not exist yet."""
        if not path:
            raise ConfigError("producer.scan_dir", "is required by the role producer")
        self.root = os.path.abspath(path)  # noqa: PTH100 - Path keeps `..`
        if not is_utf8(self.root):
            raise ConfigError("producer.scan_dir", "must be UTF-8")
        self._rules = rules
        self._reports = reports

    def walk(self, start: str = "") -> Walk:
        """A walk through all of it, or all below `start`. OSError where that cannot be read, or is no directory."""
        return Walk(self.root, self._rules, self._reports, start)

    def looks(self, paths: Sequence[str]) -> list[Found | str | None]:
        """`look` for each of them."""
        return [self.look(path) for path in paths]

    def look(self, path: str) -> Found | str | None:
        """The file at an absolute path, or where a walk starts if it is a directory; None if a scan would pass by."""
        below = path.removeprefix(self.root.rstrip("/") + "/")
        name = path.rpartition("/")[2]
        if below == path or not is_utf8(below):
            return None
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                return f"{below}/" if self._rules.enters(below) else None
        except OSError:
            return None
        if not self._rules.takes(below):
            return None
        if stat.S_ISREG(status.st_mode):
            return found(path, name, status)
        tell_irregular(self.root, path, stat.S_ISLNK(status.st_mode), status.st_ino, self._reports)
        return None
