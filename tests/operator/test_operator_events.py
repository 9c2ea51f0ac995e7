"""WatchJob: backfill and live as one read, terminal events, replays, gaps, and many watchers on one connection."""

import asyncio
import json

import grpc
import pytest

from cli.embedded.valkey import Valkey
from fetchbox.jobs.jobs_pb2 import JobState, JobStatus
from fetchbox.operator.v1 import operator_service_pb2 as pb
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub
from kernel.clock import SystemClock
from kernel.ledger import Ledger
from kernel.ledger.base import replay_keys, settle_keys
from kernel.ledger.record import error_json
from kernel.log.topics import Topics, provision
from kernel.redis import keys, scripts
from kernel.service.resources import Resources
from kernel.watch import EventSource, Feed, JobWatches
from kernel.watch import feed as feed_module
from kernel.watch import jobs as jobs_module
from operator_svc.bootstrap import build
from operator_svc.jobs import snapshot_json


async def watch(operator, job_id: str, last: str = "", limit: int = 10_000) -> list:
    """The events of a job until its stream ends, or until `limit` have come."""
    found = []
    call = operator.WatchJob(pb.WatchJobRequest(job_id=job_id, last_event_id=last))
    async for event in call:
        found.append(event)
        if len(found) == limit:
            call.cancel()
            break
    return found


def types(events) -> list[str]:
    return [event.type for event in events]


class Follower:
    """A client that watches a job; `events` are what it has by now."""

    def __init__(self, operator, job_id: str, last: str = "") -> None:
        self.events: list = []
        self._come = asyncio.Condition()
        self.task = asyncio.create_task(self._follow(operator, pb.WatchJobRequest(job_id=job_id, last_event_id=last)))

    async def _follow(self, operator, request) -> list:
        async for event in operator.WatchJob(request):
            async with self._come:
                self.events.append(event)
                self._come.notify_all()
        return self.events

    async def until(self, kind: str) -> None:
        """Waits for an event of this type."""
        async with asyncio.timeout(30), self._come:
            await self._come.wait_for(lambda: kind in types(self.events))

    async def ended(self) -> list:
        """All events, when the stream has ended."""
        return await asyncio.wait_for(self.task, 30)


async def test_hello_first_then_everything_until_the_terminal_event(operator, hand):
    job_id = await hand.ended(2)
    events = await watch(operator, job_id)
    assert types(events) == ["hello", "queued", "progress", "done"]
    assert json.loads(events[0].data) == {"job_id": job_id, "last_id": "0-0"}
    assert events[0].id == ""
    assert events[-1].step == "worker.settle"
    assert json.loads(events[-1].data)["resource_completed"] == 2
    assert events[-1].ts > 0


@pytest.mark.fault(62)
async def test_a_watcher_sees_live_events_in_order_without_repetition(operator, hand):
    job_id = await hand.job(30)
    watching = asyncio.create_task(watch(operator, job_id))
    for index in range(1, 31):
        await hand.settle(job_id, index)
        await asyncio.sleep(0.003)
    events = await asyncio.wait_for(watching, 10)
    stored = await hand.ledger.events(job_id)
    assert [event.id for event in events[1:]] == [event.id for event in stored]
    assert types(events)[-1] == "done"


@pytest.mark.parametrize("place", range(3))
async def test_a_reconnect_goes_on_behind_the_last_event(operator, hand, place):
    job_id = await hand.ended(2)
    stored = await hand.ledger.events(job_id)
    last = "" if place == 0 else stored[place - 1].id
    events = await watch(operator, job_id, last)
    assert [event.id for event in events[1:]] == [event.id for event in stored[place:]]
    assert json.loads(events[0].data)["last_id"] == (last or "0-0")


async def test_who_has_the_last_event_gets_an_empty_stream(operator, hand):
    job_id = await hand.ended(1, "DOWNLOAD_DNS")
    last = (await hand.ledger.events(job_id))[-1]
    assert await watch(operator, job_id, last.id) == []
    await hand.ledger.replay(job_id, "r1", 1, 0, 3)
    assert types(await watch(operator, job_id, last.id, limit=2)) == ["hello", "replayed"]


@pytest.mark.parametrize("last", ["99999999999999-0", f"{2**64}-0", f"{2**64 - 1}-{2**64 - 1}", "9" * 20 + "-0"])
async def test_a_cursor_beyond_the_last_event_gets_a_gap_and_all_events(operator, hand, last):
    job_id = await hand.job(1)
    watching = Follower(operator, job_id, last)
    await watching.until("queued")
    await hand.settle(job_id, 1)
    events = await watching.ended()
    assert types(events) == ["hello", "gap", "queued", "done"]
    assert json.loads(events[0].data)["last_id"] == "0-0"


async def test_a_cursor_that_no_entry_can_have_gets_a_gap_as_well(operator, hand):
    job_id = await hand.job(1)
    await asyncio.sleep(0.002)  # the two events are of different milliseconds
    await hand.settle(job_id, 1)
    first = (await hand.ledger.events(job_id))[0].id.partition("-")[0]
    assert types(await watch(operator, job_id, f"{first}-{2**64}")) == ["hello", "gap", "queued", "done"]


async def test_a_cancel_ends_the_stream(operator, hand):
    job_id = await hand.job()
    watching = Follower(operator, job_id)
    await watching.until("queued")
    await operator.CancelJob(pb.CancelJobRequest(job_id=job_id))
    assert types(await watching.ended())[-1] == "canceled"


async def test_a_replayed_job_goes_on_behind_its_old_end(operator, hand):
    job_id = await hand.ended(2, "DOWNLOAD_DNS")
    assert await hand.ledger.replay(job_id, "r1", 1, 0, 3) == ("replayed", 1)
    watching = Follower(operator, job_id)
    await watching.until("replayed")
    assert not watching.task.done(), "the old end is not the end"
    await hand.settle(job_id, 1, replay=1)
    assert types(await watching.ended()) == [
        "hello", "queued", "progress", "error", "replayed", "done"
    ]  # fmt: skip
    old_end = (await hand.ledger.events(job_id))[2]
    assert types(await watch(operator, job_id, old_end.id)) == ["hello", "replayed", "done"]


@pytest.mark.fault(62)
async def test_a_replay_that_races_the_end_is_followed(operator, hand):
    """The watcher reads a terminal event live, and the job is replayed before it can look at the record."""
    job_id = await hand.job(1)
    watching = Follower(operator, job_id)
    await watching.until("queued")
    error = error_json("DOWNLOAD_DNS", "no")
    pipe = hand.clients.commands.pipeline(transaction=True)
    settle = ["0", "worker.settle", 60_000, 1, "r1", 0, "f", error, b""]
    pipe.eval(scripts.SETTLE.source, len(scripts.SETTLE.keys), *settle_keys(job_id), *settle)
    pipe.eval(
        scripts.REPLAY.source, len(scripts.REPLAY.keys), *replay_keys(job_id), "r1", 1, 0, 3, "operator.replay", '"r1"'
    )
    await pipe.execute()
    await watching.until("replayed")
    assert not watching.task.done()
    await hand.settle(job_id, 1, replay=1)
    assert types(await watching.ended())[-3:] == ["error", "replayed", "done"]


async def test_a_cursor_older_than_the_stream_gets_a_gap_with_the_record(operator, hand):
    job_id = await hand.ended(2)
    stored = await hand.ledger.events(job_id)
    await hand.clients.commands.xtrim(keys.job_events(job_id), minid=stored[1].id, approximate=False)
    events = await watch(operator, job_id, stored[0].id)
    assert types(events) == ["hello", "gap", "progress", "done"]
    gap = json.loads(events[1].data)
    assert (gap["job_id"], gap["status"], gap["resource_completed"]) == (job_id, "completed", 2)
    assert events[1].id == ""
    assert types(await watch(operator, job_id, stored[1].id)) == ["hello", "done"], "no gap where nothing is missing"


async def test_a_stream_that_is_gone_is_a_gap_and_an_odd_cursor_ends_too(operator, hand):
    job_id = await hand.ended(1)
    assert types(await watch(operator, job_id, "99999999999999-0")) == ["hello", "gap", "queued", "done"]
    await hand.clients.commands.delete(keys.job_events(job_id))
    assert types(await watch(operator, job_id, "5-0")) == ["hello", "gap"]


async def test_the_stream_ends_when_the_record_is_gone(hand, monkeypatch):
    monkeypatch.setattr(jobs_module, "IDLE_SECONDS", 0.1)
    feed = Feed("events", EventSource(hand.clients, "events"), SystemClock())
    watches = JobWatches(hand.ledger, feed, snapshot_json)
    job_id = await hand.job()
    await feed.start()

    async def read() -> list:
        return [event async for event in watches.watch(job_id, "", lambda: None)]

    watching = asyncio.create_task(read())
    await asyncio.sleep(0.2)  # in which it looks at the record, which is there
    assert not watching.done()
    await hand.clients.commands.delete(keys.job(job_id))
    assert types(await asyncio.wait_for(watching, 5)) == ["hello", "queued"]
    assert feed.subscribers == 0
    await feed.stop()


@pytest.mark.fault(40)
async def test_watchers_and_mirror_outlive_a_restart_of_redis(tmp_path, s3, config):
    server = Valkey(tmp_path)
    server.start()
    config.redis.addr = server.addr
    resources = await Resources.open(config)
    await provision(resources.redis, config)
    ledger = Ledger(resources.redis, config)
    running = await build(config, resources)
    await running.start()
    async with grpc.aio.insecure_channel(config.operator.listen) as channel:
        operator = OperatorServiceStub(channel)
        statuses = Topics(resources.redis, config).status
        await ledger.mirror(JobStatus(job_id="direct", state=JobState.JOB_STATE_IN_PROGRESS, revision=1))
        watching = Follower(operator, "direct")
        await watching.until("running")
        server.kill9()
        await asyncio.sleep(0.3)  # in which a watcher that gives up would end
        assert not watching.task.done()
        server.start()
        end = JobStatus(job_id="direct", state=JobState.JOB_STATE_COMPLETED, resources_completed=1, revision=2)
        await statuses.publish(end)
        assert types(await watching.ended()) == ["hello", "queued", "running", "done"]
    await running.stop()
    await resources.close()
    server.stop()


async def connections(hand) -> int:
    return len(await hand.clients.commands.client_list())


@pytest.mark.fault(65)
async def test_500_watchers_share_one_connection_and_leave_nothing(operator, hand):
    jobs = [await hand.job(2) for _ in range(50)]
    before = await connections(hand)
    watching = [Follower(operator, jobs[i % 50]) for i in range(500)]
    await asyncio.gather(*(one.until("queued") for one in watching))
    during = await connections(hand)
    assert during - before <= 10, f"{during - before} connections for 500 watchers"
    for job_id in jobs:
        await hand.settle(job_id, 1)
        await hand.settle(job_id, 2)
    for events in await asyncio.gather(*(one.ended() for one in watching)):
        assert types(events) == ["hello", "queued", "progress", "done"]
    assert await connections(hand) - before <= 10


async def test_watchers_that_leave_are_forgotten(service, operator, hand):
    job_id = await hand.job()
    for _ in range(20):
        assert types(await watch(operator, job_id, limit=2)) == ["hello", "queued"]
    feed = next(duty for duty in service.duties if duty.name == "operator-events")
    for _ in range(100):
        if feed.subscribers == 0:
            break
        await asyncio.sleep(0.05)
    assert feed.subscribers == 0


async def test_a_client_that_does_not_read_is_dropped_and_others_go_on(operator, hand, config, monkeypatch):
    monkeypatch.setattr(feed_module, "CAPACITY", 50)
    monkeypatch.setattr(feed_module, "STUCK_SECONDS", 0.5)
    job_id = await hand.job(1)
    options = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(config.operator.listen, options) as channel:
        slow = OperatorServiceStub(channel).WatchJob(pb.WatchJobRequest(job_id=job_id))
        await slow.read()
        events: list[pb.JobEvent] = []

        async def follow() -> None:
            async for event in operator.WatchJob(pb.WatchJobRequest(job_id=job_id)):
                events.append(event)  # noqa: PERF401 - what has come so far is looked at

        quick = asyncio.create_task(follow())
        text = "x" * 20_000
        for start in range(0, 2000, 20):
            pipe = hand.clients.commands.pipeline(transaction=False)
            for number in range(start, start + 20):
                fields = {"type": "progress", "ts": 1, "step": "t", "data": json.dumps({"n": number, "text": text})}
                pipe.xadd(keys.job_events(job_id), fields)
            await pipe.execute()
            while len(events) < start + 20:  # noqa: ASYNC110 - it keeps up: only a few are ever on their way to it
                await asyncio.sleep(0.005)
        await hand.settle(job_id, 1)
        await asyncio.wait_for(quick, 60)
        assert len(events) == 2000 + 3
        with pytest.raises(grpc.RpcError) as dropped:  # noqa: PT012 - many reads, of which one must fail
            while await slow.read() is not grpc.aio.EOF:
                pass
        assert dropped.value.code() == grpc.StatusCode.UNAVAILABLE
