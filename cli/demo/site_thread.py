"""The sample site in a thread of its own, beside commands that block."""

import asyncio
import threading
from types import TracebackType

from cli.sample_site import SampleSite


class SiteThread:
    """A context manager that serves the sample site while it is open."""

    def __init__(self) -> None:
        self.site = SampleSite(slow_seconds=2.0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sample-site", daemon=True)

    def __enter__(self) -> SampleSite:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.site.__aenter__(), self._loop).result()
        return self.site

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.site.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
