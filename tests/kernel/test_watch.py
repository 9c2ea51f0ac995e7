"""Watching: one shared read that newcomers interrupt, events of whatever form, and clients that come back."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lane_rig import Rig, rig
from lane_rig import settings as fast

from cli.embedded.valkey import Valkey
from kernel import ids
from kernel.clock import SystemClock
from kernel.errors import FetchboxError
from kernel.ledger import JobEvent
from kernel.ledger.events import event_of
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from kernel.watch import EventSource, Feed, JobWatches, reading
from kernel.watch.jobs import REOPENED, TERMINAL
from tests.examples import most

NEVER = 120.0
"""Longer than any read here may block, so that what comes sooner came by an interruption."""


@pytest.fixture
async def box(redis_server: str) -> AsyncIterator[Rig]:
    async with rig(fast(redis_server)) as opened:
        yield opened


@contextlib.asynccontextmanager
async def feeding(clients: RedisClients) -> AsyncIterator[Feed[JobEvent]]:
    feed = Feed[JobEvent]("events", EventSource(clients, "feed-under-test"), SystemClock())
    await feed.start()
    yield feed
    await feed.stop()


@pytest.fixture
async def feed(box: Rig) -> AsyncIterator[Feed[JobEvent]]:
    async with feeding(box.clients) as running:
        yield running


async def write(box: Rig, job_id: str, kind: str) -> str:
    """An event as a bare worker writes it; its id."""
    fields = {"type": kind, "ts": "1", "step": "worker", "data": "{}"}
    return (await box.redis.xadd(keys.job_events(job_id), fields)).decode()


async def blocked(box: Rig) -> list[dict[str, str]]:
    """The feed's connection, once Redis holds it in a read."""
    while True:
        found = [one for one in await box.redis.client_list() if one["name"] == "feed-under-test"]
        if found and "b" in found[0]["flags"]:
            return found
        await asyncio.sleep(0.01)


async def test_a_newcomer_is_heard_while_a_read_waits_for_the_others(
    box: Rig, feed: Feed[JobEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_SECONDS", NEVER)
    async with asyncio.timeout(NEVER / 2):
        with feed.subscribe("a", "0-0", lambda: None) as first:
            await blocked(box)
            with feed.subscribe("b", "0-0", lambda: None) as second:
                await write(box, "b", "running")
                event = await second.get(NEVER)
                assert event is not None
                assert event.type == "running"
            await write(box, "a", "token")
            event = await first.get(NEVER)
            assert event is not None
            assert event.type == "token"


async def test_many_newcomers_at_once_are_all_heard_on_one_connection(
    box: Rig, feed: Feed[JobEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_SECONDS", NEVER)
    async with asyncio.timeout(NEVER / 2):
        with contextlib.ExitStack() as stack:
            for number in range(300):
                live = stack.enter_context(feed.subscribe(f"job-{number}", "0-0", lambda: None))
                await write(box, f"job-{number}", "running")
                assert await live.get(NEVER) is not None
                assert number or await blocked(box)
            assert feed.subscribers == 300
            assert len(await blocked(box)) == 1
    assert feed.subscribers == 0


@pytest.mark.fault(49)
async def test_where_a_read_may_not_be_interrupted_newcomers_wait_for_its_end(box: Rig) -> None:
    await box.redis.execute_command("ACL", "SETUSER", "meek", "on", ">word", "~*", "&*", "+@all", "-client|unblock")
    config = box.config.redis
    config.username, config.password = "meek", "word"
    clients = await RedisClients.open(config)
    try:
        async with feeding(clients) as feed, asyncio.timeout(30):
            with feed.subscribe("a", "0-0", lambda: None):
                await blocked(box)
                with feed.subscribe("b", "0-0", lambda: None) as second:
                    await write(box, "b", "running")
                    assert await second.get(30) is not None
    finally:
        await clients.close()
        await box.redis.execute_command("ACL", "DELUSER", "meek")


@pytest.mark.fault(40, 62)
async def test_a_lost_connection_loses_no_event(box: Rig, feed: Feed[JobEvent]) -> None:
    async with asyncio.timeout(30):
        with feed.subscribe("a", "0-0", lambda: None) as live:
            for _ in range(3):
                (connection,) = await blocked(box)
                await box.redis.execute_command("CLIENT", "KILL", "ID", connection["id"])
                written = await write(box, "a", "token")
                event = await live.get(30)
                assert event is not None
                assert event.id == written


async def test_a_key_of_another_kind_holds_up_no_other_watcher(box: Rig, feed: Feed[JobEvent]) -> None:
    await box.redis.set(keys.job_events("odd"), "no stream")
    async with asyncio.timeout(30):
        with feed.subscribe("odd", "0-0", lambda: None) as odd:
            await asyncio.sleep(0)
            with feed.subscribe("a", "0-0", lambda: None) as live:
                for _ in range(3):
                    written = await write(box, "a", "token")
                    event = await live.get(30)
                    assert event is not None
                    assert event.id == written, "while the other one is watched as well"
                assert await odd.get(0) is None
                await box.redis.delete(keys.job_events("odd"))
                written = await write(box, "odd", "token")
                event = await odd.get(30)
                assert event is not None
                assert event.id == written, "it heals by itself"


BYTES = st.binary(max_size=12) | st.sampled_from([b"done", b"12", b"-1", b"9" * 30, b"{}", b"{", b'"\xff"', b"a\r\nb"])
FIELDS = st.dictionaries(st.sampled_from([b"type", b"ts", b"step", b"data", b"more"]) | BYTES, BYTES, max_size=6)


@given(fields=FIELDS, ms=st.integers(0, 2**64 - 1))
def test_every_entry_is_an_event_that_can_be_shown(fields: dict[bytes, bytes], ms: int) -> None:
    event = event_of(f"{ms}-0".encode(), [part for pair in fields.items() for part in pair])
    assert not [letter for letter in event.type if ord(letter) < 32 or ord(letter) == 127]
    assert 0 <= event.ts < 2**63
    json.loads(event.data)
    event.step.encode()
    assert event.id == f"{ms}-0"


def shown(history: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of a history a client is to see: nothing between an end and a replay."""
    found: list[tuple[str, str]] = []
    ended = False
    for entry in history:
        if not ended or entry[1] == REOPENED:
            found.append(entry)
            ended = entry[1] in TERMINAL
    return found


async def test_a_job_that_the_caller_may_not_see_is_not_found(box: Rig, feed: Feed[JobEvent]) -> None:
    watches = JobWatches(box.ledger, feed, lambda _: b"{}")
    job_id = await box.submit(1)
    for name, may_see in ((job_id, lambda _: False), (ids.uuid7(), lambda _: True)):
        with pytest.raises(FetchboxError, match="There is no job"):
            await anext(watches.watch(name, "", lambda: None, may_see))


async def test_a_watcher_whose_read_finds_redis_away_waits_for_it(tmp_path: Path) -> None:
    server = Valkey(tmp_path)
    server.start()
    config = fast(server.addr)
    config.redis.max_retries = 0
    async with rig(config) as box, feeding(box.clients) as feed:
        job_id = ids.uuid7()
        await box.redis.hset(keys.job(job_id), mapping={"job_id": job_id, "status": "running"})
        await write(box, job_id, "queued")
        watching = JobWatches(box.ledger, feed, lambda _: b"{}").watch(job_id, "", lambda: None)
        assert (await anext(watching)).type == "hello"
        server.kill9()
        following = asyncio.ensure_future(anext(watching))
        await asyncio.wait({following}, timeout=0.5)  # in which one that gives up would end
        assert not following.done()
        server.start()
        async with asyncio.timeout(30):
            assert (await following).type == "queued"
        await watching.aclose()
    server.stop()


@given(
    kinds=st.lists(st.sampled_from(["running", "token", "done", "error", REOPENED]), max_size=12),
    before=st.integers(0, 12),
    takes=st.lists(st.integers(1, 4), max_size=6),
)
@settings(max_examples=most(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_client_that_comes_back_sees_each_event_once(
    box: Rig, feed: Feed[JobEvent], kinds: list[str], before: int, takes: list[int]
) -> None:
    """Events come while the client reads, leaves, and comes back with its cursor until there is nothing more."""
    watches = JobWatches(box.ledger, feed, lambda _: b"{}")
    job_id = ids.uuid7()
    await box.redis.hset(keys.job(job_id), mapping={"job_id": job_id, "status": "running"})
    kinds = ["queued", *kinds, "done"]
    history: list[tuple[str, str]] = []

    async def go_on(some: list[str]) -> None:
        for kind in some:
            history.append((await write(box, job_id, kind), kind))  # noqa: PERF401 - as they come

    await go_on(kinds[:before])
    writing = asyncio.create_task(go_on(kinds[before:]))
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        while True:
            over = writing.done()
            stream = watches.watch(job_id, seen[-1][0] if seen else "", lambda: None)
            limit = takes.pop() if takes else len(kinds)
            found = await _take(stream, limit)
            seen += found
            if over and not found:
                break
    assert seen == shown(history)


async def _take(stream: AsyncIterator, limit: int) -> list[tuple[str, str]]:
    """Up to so many events of a stream behind its greeting; then the client leaves."""
    found = []
    async with contextlib.aclosing(stream):
        async for event in stream:
            if event.id:
                found.append((event.id, event.type))
            if len(found) == limit:
                break
    return found
