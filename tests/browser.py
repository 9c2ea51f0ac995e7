"""A headless Chromium, steered by its own protocol; what pages complain about and ask for is written down."""

import asyncio
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

# It looks for nothing on the network, not even for updates.
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0"),
)
_PATIENCE = 90


class Page:
    """The one tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._loaded = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        """What the console shows: errors of the page, and what its policy forbade."""
        self.requests: list[str] = []
        """URLs that it asked for, but `data:`."""

    async def open(self, path: Path) -> None:
        """Shows a file."""
        await self.visit(path.as_uri())

    async def visit(self, url: str) -> None:
        """Shows what is at an address."""
        for domain in ("Page", "Network", "Log", "Runtime", "Security"):
            await self.call(f"{domain}.enable")
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _PATIENCE)

    async def look(self, width: int, height: int = 900, **features: str) -> None:
        """A window of that size; `media="print"`, or features like `prefers_color_scheme="dark"`."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        media = features.pop("media", "")
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", media=media, features=wanted)

    async def value(self, script: str) -> Any:
        """The value of an expression of JavaScript, which the page itself may not run."""
        done = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol and its answer."""
        number = next(self._ids)
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        answer: dict[str, Any] = await asyncio.wait_for(waiting, _PATIENCE)
        return answer

    async def listen(self) -> None:
        """Takes what Chromium tells, until it ends."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                waiting = self._answers.pop(told["id"])
                if not waiting.done():  # whoever lost patience waits no more
                    waiting.set_result(told.get("result", told))
            else:
                self._note(told["method"], told["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
            self.complaints.append(str(params))
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.requests.append(params["request"]["url"])


@asynccontextmanager
async def chromium(program: str, folder: Path, *flags: str) -> AsyncIterator[Page]:
    """A browser with an empty profile in `folder`, and its tab."""
    process = _started(program, folder, flags)
    try:
        port = await asyncio.wait_for(_port(process, folder), _PATIENCE)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                targets = await answer.json()
            url = next(one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                yield page
            await listening
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder / "profile", ignore_errors=True)


def _started(program: str, folder: Path, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        arguments = [program, *_FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        return subprocess.Popen(arguments, stdout=log, stderr=log)


async def _port(process: subprocess.Popen[bytes], folder: Path) -> int:
    while not (lines := _lines(folder / "profile" / "DevToolsActivePort")):
        assert process.poll() is None, _lines(folder / "log")
        await asyncio.sleep(0.05)
    return int(lines[0])


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
