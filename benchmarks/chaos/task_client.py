"""The client of the tasks: creates each over REST until it is accepted, and watches it over SSE to its end."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from worker_svc.tasks.sse import SseEvent, SseParser

TERMINAL = frozenset({"done", "error", "canceled"})
_PAUSE = 0.3
_SILENCE = 20.0
"""Above the gateway's heartbeat: a watcher that hears nothing for so long has lost its connection."""
_OUTAGES = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
_RETRIED = frozenset({429, 502, 503, 504})
_MOST = 1 << 20


@dataclass
class Progress:
    """What the killer and the terminal look at."""

    accepted: int = 0
    ended: int = 0
    refused: int = 0
    retries: int = 0
    resumed: int = 0


@dataclass
class Watched:
    """One task, as its client saw it."""

    number: int
    kind: str
    job_id: str = ""
    events: list[SseEvent] = field(default_factory=list)


class TaskClient:
    """Speaks REST and SSE; outages are retried, refusals are errors."""

    def __init__(self, base: str, progress: Progress) -> None:
        self._base = base
        self._progress = progress
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENCE),
        )

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.close()

    async def run(self, watched: Watched, payload: dict[str, Any]) -> Watched:
        """Creates the task and watches it to its end."""
        watched.job_id = await self._create(watched.number, payload)
        self._progress.accepted += 1
        last = ""
        while not (watched.events and watched.events[-1].type in TERMINAL):
            last = await self._watch(watched, last)
        self._progress.ended += 1
        return watched

    async def _create(self, number: int, payload: dict[str, Any]) -> str:
        """The job id. Every try has the same key, so a lost answer makes no second job."""
        body = {"task": "chat", "payload": payload}
        headers = {"Idempotency-Key": f"chaos-{number}"}
        while True:
            with suppress(*_OUTAGES):
                async with self._http.post(f"{self._base}/v1/jobs", json=body, headers=headers) as answer:
                    if answer.status == 202:
                        return str((await answer.json())["job_id"])
                    if answer.status not in _RETRIED:
                        raise RuntimeError(f"task {number}: {answer.status} {await answer.text()}")
                    self._progress.refused += answer.status == 429
            self._progress.retries += 1
            await asyncio.sleep(_PAUSE)

    async def _watch(self, watched: Watched, last: str) -> str:
        """Reads on after the event `last`, until the stream ends or breaks; the id to go on after."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        url = f"{self._base}/v1/jobs/{watched.job_id}/events"
        try:
            async with self._http.get(url, headers=headers) as answer:
                if answer.status != 200:
                    raise aiohttp.ClientError(f"{answer.status}")
                parser = SseParser(_MOST)
                async for piece in answer.content.iter_any():
                    for event in parser.feed(piece):
                        if event.type in {"hello", "stream_error"}:
                            continue
                        watched.events.append(event)
                        last = event.last_id
        except _OUTAGES:
            await asyncio.sleep(_PAUSE)
        self._progress.resumed += not (watched.events and watched.events[-1].type in TERMINAL)
        return last


def attempts(events: list[SseEvent]) -> int:
    """How often a task was begun."""
    return sum(event.type == "running" for event in events)


def data_of(event: SseEvent) -> Any:
    """What an event carries."""
    return json.loads(event.data)["data"]
