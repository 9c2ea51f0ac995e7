"""`GET /v1/jobs/{id}/events` from the HTTP client to Redis: real gateway, real ingest, and hands that write the keys.

What workers do is written here key by key, as one by the letter of seed 004 does it: without a revision, and the record
and its event in two steps.
"""

import asyncio
import dataclasses
import itertools
import json
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis.asyncio

import gateway.bootstrap
import ingest_svc.bootstrap
from cli.embedded.process import LocalProcess
from fetchbox.config.v1.config_pb2 import Config
from kernel.ids import uuid7
from kernel.service.resources import Resources
from kernel.watch import feed as feed_module
from kernel.watch import jobs as jobs_module
from tests import sse

CLIENTS = 2000
ACROSS = 100
"""So many of them open at the same time."""


@dataclass
class Worker:
    """A gateway and a worker by the letter of seed 004."""

    redis: "redis.asyncio.Redis"
    ids: "itertools.count[int]" = field(default_factory=itertools.count)

    async def create(self, **more: str) -> str:
        """A job as such a gateway makes it."""
        job_id = uuid7()
        record = {"job_id": job_id, "task": "chat", "payload": "{}", "status": "queued", "created_ts": "1"}
        await self.redis.hset(
            f"job:{job_id}", mapping={**record, "updated_ts": "1", "ttl_s": "600", "result": "", "error": "", **more}
        )
        await self.event(job_id, "queued", step="gateway.enqueue")
        return job_id

    async def event(self, job_id: str, kind: str, data: str = "{}", step: str = "worker") -> str:
        """An event; its id."""
        return await self.write(job_id, {"type": kind, "ts": "7", "step": step, "data": data})

    async def write(self, job_id: str, fields: dict[Any, Any]) -> str:
        """An entry with just these fields; its id."""
        return (await self.redis.xadd(f"job:{job_id}:events", fields)).decode()

    async def status(self, job_id: str, status: str) -> None:
        """The step that is not yet the event."""
        await self.redis.hset(f"job:{job_id}", mapping={"status": status, "updated_ts": str(next(self.ids))})

    async def connections(self) -> int:
        """How many connections Redis has."""
        return int((await self.redis.info("clients"))["connected_clients"])


@dataclass
class Live:
    """The running platform, as its client and its worker see it."""

    http: aiohttp.ClientSession
    worker: Worker
    port: int
    gate: Any
    subscribers: Callable[[], int]

    async def create(self) -> str:
        """A job of our own."""
        async with self.http.post("/v1/jobs", json={"task": "chat", "payload": {"n": 1}}) as answer:
            assert answer.status == 202, await answer.text()
            return (await answer.json())["job_id"]

    def open(self, job_id: str, query: str = "", **headers: str) -> Any:
        """The request for the events."""
        return self.http.get(f"/v1/jobs/{job_id}/events{query}", headers={**sse.ACCEPT, **headers})

    async def all(self, job_id: str, query: str = "", **headers: str) -> list[sse.Event]:
        """All events until the stream ends."""
        async with self.open(job_id, query, **headers) as answer, asyncio.timeout(90):  # the machine may be busy
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            return [event async for event in sse.events(answer)]


@asynccontextmanager
async def platform(config: Config, resources: Resources) -> AsyncIterator[Live]:
    """Ingest and gateway in this process."""
    config.tasks.chat.handler = "remote"
    ingest = await ingest_svc.bootstrap.build(config, resources)
    gate = await gateway.bootstrap.build(config)
    await ingest.start()
    await gate.start()
    feed = next(duty for duty in ingest.duties if isinstance(duty, feed_module.Feed))
    client = redis.asyncio.Redis.from_url(f"redis://{config.redis.addr}")
    async with aiohttp.ClientSession(f"http://{config.gateway.listen}") as http:
        port = int(config.gateway.listen.rpartition(":")[2])
        yield Live(http, Worker(client), port, gate.duties[0], lambda: feed.subscribers)
    await client.aclose()
    await gate.stop()
    await ingest.stop()


@pytest.fixture
async def live(config: Config, resources: Resources) -> AsyncIterator[Live]:
    async with platform(config, resources) as running:
        yield running


def types(events: list[sse.Event]) -> list[str]:
    return [event.type for event in events]


@pytest.mark.req(
    "R004-sse.01", "R004-sse.03", "R004-sse.06", "R004-sse.07", "R004-sse.08", "R004-events.01", "R004-events.04",
    "R004-events.05", "R004-events.06", "R004-events.07",
)  # fmt: skip
@pytest.mark.parametrize("end", ["done", "error", "canceled"])
async def test_hello_then_every_event_until_the_last(live: Live, end: str) -> None:
    job_id = await live.create()
    watching = asyncio.create_task(live.all(job_id))
    ids = [await live.worker.event(job_id, kind) for kind in ("running", "token")]
    await live.worker.status(job_id, end)
    ids.append(await live.worker.event(job_id, end, '{ "attempts":1}'))
    hello, queued, *events = await watching
    assert (hello.type, hello.id, hello.json["data"]) == ("hello", None, {"job_id": job_id, "last_id": "0-0"})
    assert (queued.type, queued.json["step"], queued.json["data"]) == ("queued", "gateway.enqueue", {})
    assert queued.json["ts"].isdigit()
    assert [(event.type, event.id) for event in events] == list(zip(["running", "token", end], ids, strict=True))
    assert events[-1].json == {"id": ids[-1], "type": end, "ts": "7", "step": "worker", "data": {"attempts": 1}}
    assert '{ "attempts":1}' in events[-1].data, "byte for byte"


@pytest.mark.req("R004-sse.02")
async def test_an_unknown_job_has_no_stream(live: Live) -> None:
    for query in ("", "?last_event_id=1-1"):
        async with live.open(uuid7(), query) as answer:
            assert (answer.status, answer.content_type) == (404, "application/json")
            assert answer.headers["x-fetchbox-error"] == "NOT_FOUND"


async def test_a_tenants_job_is_not_there_for_others(config: Config, resources: Resources) -> None:
    for name in ("ann", "bob"):
        config.security.tenant_tokens[f"{name}-token"] = name
    async with platform(config, resources) as live:
        job_id = await live.worker.create(tenant="ann")
        await live.worker.event(job_id, "done")
        assert types(await live.all(job_id, Authorization="Bearer ann-token")) == ["hello", "queued", "done"]
        async with live.open(job_id, Authorization="Bearer bob-token") as answer:
            assert answer.status == 404
        async with live.open(job_id) as answer:
            assert answer.status == 401


@pytest.mark.req("R004-sse.04")
async def test_an_idle_stream_gets_heartbeats(live: Live) -> None:
    handler = live.gate._handler
    handler.limits = dataclasses.replace(handler.limits, heartbeat=0.05)
    job_id, reader = await live.create(), sse.Reader()
    async with live.open(job_id) as answer, asyncio.timeout(10):
        found: list[sse.Event] = []
        while reader.comments.count("heartbeat") < 3:
            found += reader.feed(await answer.content.readany())
    assert types(found) == ["hello", "queued"]
    assert reader.retry == 1000


@pytest.mark.req("R004-sse.05")
async def test_a_client_goes_on_after_the_event_that_it_has(live: Live) -> None:
    job_id = await live.worker.create()
    ids = [await live.worker.event(job_id, kind) for kind in ("running", "token", "token", "done")]
    for place in range(3):
        for query, headers in (("", {"Last-Event-ID": ids[place]}), (f"?last_event_id={ids[place]}", {})):
            hello, *events = await live.all(job_id, query, **headers)
            assert hello.json["data"] == {"job_id": job_id, "last_id": ids[place]}
            assert [event.id for event in events] == ids[place + 1 :]
    both = await live.all(job_id, f"?last_event_id={ids[0]}", **{"Last-Event-ID": ids[2]})
    assert [event.id for event in both[1:]] == ids[3:], "the header is newer than the URL"
    async with live.open(job_id, **{"Last-Event-ID": "garbage"}) as answer:
        assert (answer.status, answer.content_type) == (400, "application/json")


@pytest.mark.req("R004-sse.05")
async def test_a_cursor_that_the_stream_has_lost_gets_a_gap_with_the_record(live: Live) -> None:
    job_id = await live.create()
    ids = [await live.worker.event(job_id, kind) for kind in ("running", "token", "done")]
    await live.worker.redis.xtrim(f"job:{job_id}:events", minid=ids[1], approximate=False)
    await live.worker.status(job_id, "done")
    for cursor in (ids[0], "99999999999999-0"):
        hello, gap, *events = await live.all(job_id, **{"Last-Event-ID": cursor})
        assert hello.json["data"]["last_id"] == "0-0"
        assert (gap.type, gap.id) == ("gap", None)
        record = gap.json["data"]
        assert (record["job_id"], record["task"], record["status"]) == (job_id, "chat", "done")
        assert record["payload"] is None
        assert [event.id for event in events] == ids[1:]


@pytest.mark.parametrize("status", ["running", "done"])
async def test_who_has_the_last_event_need_not_come_again(live: Live, status: str) -> None:
    """204 ends an EventSource; only the terminal event's id may do so, whatever the record says."""
    job_id = await live.worker.create()
    ids = [await live.worker.event(job_id, kind) for kind in ("running", "done")]
    await live.worker.status(job_id, status)
    late = await live.worker.event(job_id, "token")
    async with live.open(job_id, **{"Last-Event-ID": ids[1]}) as answer:
        assert (answer.status, await answer.read()) == (204, b"")
    assert types(await live.all(job_id, **{"Last-Event-ID": ids[0]})) == ["hello", "done"]
    assert late not in {event.id for event in await live.all(job_id)}, "what comes after the end is not shown"


@pytest.mark.req("R004-sse.08", "R004-events.08")
@pytest.mark.parametrize("steps", ["event only", "record first", "event first"])
async def test_a_bare_worker_ends_the_stream(live: Live, steps: str) -> None:
    job_id = await live.worker.create()
    async with live.open(job_id) as answer, asyncio.timeout(90):  # the machine may be busy
        events = sse.events(answer)
        assert [(await anext(events)).type for _ in range(2)] == ["hello", "queued"]
        if steps == "record first":
            await live.worker.status(job_id, "done")
            await live.worker.event(job_id, "token")
            assert (await anext(events)).type == "token"
        await live.worker.event(job_id, "done")
        if steps == "event first":
            await live.worker.status(job_id, "done")
        assert types([event async for event in events]) == ["done"]
    assert types(await live.all(job_id))[-1] == "done"


async def test_an_ended_record_whose_event_never_comes_ends_the_stream(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "IDLE_SECONDS", 0.3)
    job_id = await live.worker.create()
    await live.worker.status(job_id, "error")
    assert types(await live.all(job_id)) == ["hello", "queued"]


@pytest.mark.fault(66)
async def test_a_record_that_goes_ends_the_stream(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "IDLE_SECONDS", 0.2)
    job_id = await live.create()
    async with live.open(job_id) as answer, asyncio.timeout(90):  # the machine may be busy
        events = sse.events(answer)
        assert [(await anext(events)).type for _ in range(2)] == ["hello", "queued"]
        await live.worker.redis.delete(f"job:{job_id}", f"job:{job_id}:events")
        assert [event async for event in events] == []


FOREIGN: dict[str, tuple[dict[Any, Any], str, Any]] = {
    "nothing known": ({"x": "y"}, "message", {}),
    "no data": ({"type": "token"}, "token", {}),
    "empty data": ({"type": "token", "data": ""}, "token", {}),
    "no JSON": ({"type": "token", "data": "it's\r\ntext"}, "token", {"_raw": "it's\r\ntext"}),
    "no number of JSON": ({"type": "token", "data": "NaN"}, "token", {"_raw": "NaN"}),
    "half a surrogate": ({"type": "token", "data": '"\\ud800"'}, "token", {"_raw": '"\\ud800"'}),
    "no object": ({"type": "token", "data": "[1]"}, "token", [1]),
    "no UTF-8": ({"type": "token", "data": b"\xff"}, "token", {"_raw": "\ufffd"}),
    "line ends in the JSON": ({"type": "token", "data": '{"a":\r\n1}'}, "token", {"a": 1}),
    "a type of two lines": ({"type": "to\r\nken\ndata: x"}, "to\ufffd\ufffdken\ufffddata: x", {}),
    "a type that is almost the end": ({"type": "done\n"}, "done\ufffd", {}),
    "a type with a zero": ({"type": b"a\x00\xffb"}, "a\ufffd\ufffdb", {}),
    "no time": ({"type": "token", "ts": "soon"}, "token", {}),
    "more time than there is": ({"type": "token", "ts": "9" * 40}, "token", {}),
}


@pytest.mark.req("R004-sse.06", "R004-sse.07")
@pytest.mark.parametrize("name", FOREIGN)
async def test_no_event_of_a_bare_worker_breaks_the_stream(live: Live, name: str) -> None:
    fields, kind, data = FOREIGN[name]
    job_id = await live.worker.create()
    entry = await live.worker.write(job_id, fields)
    await live.worker.event(job_id, "done")
    found = await live.all(job_id)
    assert types(found) == ["hello", "queued", kind, "done"]
    odd = found[2]
    assert (odd.id, odd.json["id"], odd.json["data"]) == (entry, entry, data)
    assert int(odd.json["ts"]) < 1 << 63


@pytest.mark.long
@pytest.mark.req("R004-events.02")
@pytest.mark.fault(65)
async def test_thousands_of_clients_come_and_go_and_leave_nothing(live: Live, resources: Resources) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * CLIENTS)), hard))
    jobs = [await live.worker.create() for _ in range(20)]
    await asyncio.gather(*(resources.redis.ping() for _ in range(ACROSS)))  # the pool has all its connections now
    await _hold(live, jobs, 1)
    await _gone(live)
    before = await live.worker.connections()
    during = await _hold(live, jobs, CLIENTS)
    few = CLIENTS // 50  # pools open what they need, and the server notices later than we do who has gone
    assert during <= before + few, "watchers have no connections of their own"
    await _gone(live)
    assert await live.worker.connections() <= before + few


async def _hold(live: Live, jobs: list[str], count: int) -> int:
    """The connections of Redis while so many clients watch."""
    turns = asyncio.Semaphore(ACROSS)

    async def one(number: int) -> asyncio.StreamWriter:
        async with turns:
            reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
            path = f"/v1/jobs/{jobs[number % len(jobs)]}/events"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
            await reader.readuntil(b"event: queued")
            return writer

    async with asyncio.timeout(300):
        writers = await asyncio.gather(*map(one, range(count)))
    await _until(lambda: live.subscribers() == count)
    found = await live.worker.connections()
    for writer in writers:
        writer.close()
    return found


async def _gone(live: Live) -> None:
    await _until(lambda: not live.subscribers() and not live.gate._handler._streams)


async def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_client_that_does_not_read_is_closed_without_an_event(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "CAPACITY", 50)
    handler = live.gate._handler
    handler.limits = dataclasses.replace(handler.limits, stall=3.0)
    job_id = await live.worker.create()
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port, limit=2**14)
    writer.write(
        f"GET /v1/jobs/{job_id}/events HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    wire = await reader.readuntil(b"event: queued")
    quick = asyncio.create_task(live.all(job_id))
    data = json.dumps({"text": "x" * 20_000})
    for _ in range(1000):
        await live.worker.event(job_id, "token", data)
    await live.worker.event(job_id, "done")
    assert len(await quick) == 1003
    await _gone(live)
    try:
        while piece := await reader.read(1 << 16):
            wire += piece
    except ConnectionError:
        pass
    writer.close()
    known = sse.parse(wire.partition(b"\r\n\r\n")[2])
    assert set(types(known)) <= {"hello", "queued", "token"}
    rest = await live.all(job_id, **{"Last-Event-ID": known[-1].last_id})
    assert len(known) + len(rest) - 1 == 1003


async def test_a_service_that_dies_is_told_in_the_stream(config: Config, resources: Resources, tmp_path: Path) -> None:
    """`error` is the job's; what befalls the stream is `stream_error`, and its client comes back with its cursor."""
    worker = Worker(resources.redis.commands)
    child = _ingest(config, tmp_path)
    child.start()
    gate = await gateway.bootstrap.build(config)
    await gate.start()
    try:
        job_id = await worker.create()
        async with (
            aiohttp.ClientSession(f"http://{config.gateway.listen}") as http,
            http.get(f"/v1/jobs/{job_id}/events", headers=sse.ACCEPT) as answer,
            asyncio.timeout(30),
        ):
            events = sse.events(answer)
            assert [(await anext(events)).type for _ in range(2)] == ["hello", "queued"]
            child.kill9()
            (failure,) = [event async for event in events]
            assert (failure.type, failure.id) == ("stream_error", None)
            assert failure.json["details"][0]["reason"] == "UNAVAILABLE"
            async with http.get(f"/v1/jobs/{job_id}/events", headers=sse.ACCEPT) as refused:
                assert (refused.status, refused.content_type) == (503, "application/json")
    finally:
        child.kill9()
        await gate.stop()


def _ingest(config: Config, directory: Path) -> LocalProcess:
    store = config.object_store
    path = directory / "fetchbox.toml"
    path.write_text(f"""
[redis]
addr = "{config.redis.addr}"

[object_store]
endpoint = "{store.endpoint}"
bucket = "{store.bucket}"
access_key_id = "{store.access_key_id}"
secret_access_key = "{store.secret_access_key}"

[ingest]
listen = "{config.ingest.listen}"

[observability]
metrics_port = 0
""")
    argv = [sys.executable, "-m", "cli.main", "serve", "--role=ingest", f"--config={path}"]
    port = int(config.ingest.listen.rpartition(":")[2])
    return LocalProcess("ingest", argv, directory / "ingest.log", lambda: _listens(port), start_timeout=60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
