"""Any interleaving of what workers, operators and fate do keeps every task in one place and counts it once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from lane_rig import NEVER_HELD, PASSING, Rig, task
from lane_rig import settings as lane_settings

from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel import ids
from kernel.queue.streams.item import Item
from kernel.queue.streams.stream import Claim, Failure, StreamLane, Success
from kernel.queue.work.retry import Verdict
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.examples import most

T = TypeVar("T")
WORKERS = ("w0", "w1", "w2")
LUCK = st.integers(0, 2)
"""What is rare happens at 0."""
PICK = st.integers(0, 999)
"""Chooses among what there is: what there is depends on the server, and a strategy must not."""


@dataclass
class Resource:
    """What we know of a resource."""

    task: DownloadTask
    state: str = "open"
    """`open`, `completed` or `failed`."""
    replay: int = 0
    token: int = 0
    """The highest that was granted: whoever has a lower one is fenced."""


@dataclass
class Job:
    """What we know of a job."""

    resources: dict[str, Resource] = field(default_factory=dict)
    canceled: bool = False

    def count(self, state: str) -> int:
        return sum(resource.state == state for resource in self.resources.values())

    @property
    def ended(self) -> bool:
        return self.canceled or self.count("open") == 0


class Machine(RuleBasedStateMachine):
    """The model beside the real thing."""

    addr = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.jobs: dict[str, Job] = {}
        self.held: list[tuple[StreamLane, Claim]] = []
        self.lanes: dict[str, StreamLane] = {}
        self.names = 0
        config = lane_settings(self.addr, crash_limit=1000)
        config.worker.backoff.max.FromNanoseconds(2_000_000)
        self.box = Rig(config, self.run(RedisClients.open(config.redis)))
        self.run(self.box.redis.flushall())
        self.box.retries = 1000
        for worker in WORKERS:
            self.lanes[worker] = self.run(self.box.lane(worker))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    # What may happen.

    @rule(total=st.integers(1, 4), direct=st.booleans(), indexed=st.booleans(), worker=st.sampled_from(WORKERS))
    def submit(self, total: int, direct: bool, indexed: bool, worker: str) -> None:
        job_id = ids.uuid7()
        tasks = [task(job_id, n, total, **({} if indexed else {"resource_index": 0})) for n in range(1, total + 1)]
        if direct:
            self.run(self.box.direct(*tasks))
        else:
            self.run(self._ingest(job_id, tasks))
        self.jobs[job_id] = Job({one.resource_id: Resource(one) for one in tasks})
        self.claim(worker, total)

    async def _ingest(self, job_id: str, tasks: list[DownloadTask]) -> None:
        from kernel.ledger import JobRecord  # noqa: PLC0415  # the only use

        await self.box.ledger.enter_outbox(job_id)
        await self.box.ledger.accept(JobRecord(job_id=job_id, job_type="default", resource_total=len(tasks)))
        await self.box.ledger.publish(job_id, [one.SerializeToString() for one in tasks])

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 6))
    def claim(self, worker: str, limit: int) -> None:
        lane = self.lanes[worker]
        for claim in self.run(lane.claim(limit, 0.05 if self.waiting() else 0.001)):
            self.held.append((lane, claim))
            _, resource = self._of(claim)
            resource.token = max(resource.token, claim.token)

    @rule(pick=PICK, outcome=st.sampled_from([Success(), NEVER_HELD, PASSING]), again=st.booleans())
    def settle(self, pick: int, outcome: Success | Failure, again: bool) -> None:
        if not self.held:
            return
        lane, claim = self.held[pick % len(self.held)]
        if not again:
            self.held.remove((lane, claim))
        settled = self.run(lane.settle(claim, outcome)).outcome
        job, resource = self._of(claim)
        if settled in {"completed", "failed", "retrying"}:
            assert claim.token == resource.token, "a later claim owns it"
        if settled in {"completed", "failed"}:
            assert resource.state == "open", "settled once"
            assert not job.canceled
            assert claim.task.replay == resource.replay
            resource.state = settled
        elif settled == "retrying":
            assert resource.state == "open"
            assert outcome is PASSING
        elif settled == "settled":
            assert resource.state != "open"
        elif settled == "absorbed":
            assert job.canceled
        else:
            assert settled == "fenced"

    @rule(pick=PICK)
    def give_back(self, pick: int) -> None:
        if not self.held:
            return
        lane, claim = self.held[pick % len(self.held)]
        self.held.remove((lane, claim))
        self.run(lane.give_back([claim]))

    def waiting(self) -> bool:
        """Whether anybody has something to do."""
        return any(not job.ended for job in self.jobs.values())

    @rule(worker=st.sampled_from(WORKERS), luck=LUCK)
    def die(self, worker: str, luck: int) -> None:
        if luck == 0:
            self._replace(worker)

    def _replace(self, worker: str) -> None:
        self._die(worker)
        self.lanes[worker] = self.run(self.box.lane(self._name(worker)))

    @rule(worker=st.sampled_from(WORKERS), heir=st.sampled_from(WORKERS), luck=LUCK)
    def lapse(self, worker: str, heir: str, luck: int) -> None:
        """Its lease is over and it does not know: only the scripts stand between it and the heirs."""
        if luck == 0:
            self.run(self.box.lapse(self.lanes[worker].worker_id))
            self.claim(heir, 6)

    @rule(pick=PICK, luck=LUCK)
    def die_between_record_and_publications(self, pick: int, luck: int) -> None:
        if luck or not self.held:
            return
        lane, claim = self.held[pick % len(self.held)]
        error = b'{"code":"DOWNLOAD_HTTP_404","message":"not there","attempts":1}'
        item = Item(claim, Verdict("f", 1, error), "DOWNLOAD_HTTP_404", "not there")
        (reply,) = self.run(lane._link.run([lane._settler._settle([item])]))
        if reply[11] == b"n":
            job, resource = self._of(claim)
            assert resource.state == "open"
            assert not job.canceled
            resource.state = "failed"
        worker = next(name for name, known in self.lanes.items() if known is lane)
        self._replace(worker)

    @rule(pick=PICK, copies=st.integers(1, 2))
    def replay(self, pick: int, copies: int) -> None:
        failed = [
            resource
            for job in self.jobs.values()
            for resource in job.resources.values()
            if resource.state == "failed" and not job.canceled
        ]
        if not failed:
            return
        resource = failed[pick % len(failed)]
        one, before = resource.task, resource.replay
        call = (one.job_id, one.resource_id, one.resource_index, before, 0)
        assert self.run(self.box.ledger.replay(*call)) == ("replayed", before + 1)
        assert self.run(self.box.ledger.replay(*call)) == ("already_replayed", before + 1)
        resource.state, resource.replay = "open", before + 1
        again = DownloadTask()
        again.CopyFrom(one)
        again.replay = before + 1
        self.run(self.box.direct(*[again] * copies))

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        job_id = list(self.jobs)[pick % len(self.jobs)] if self.jobs else ""
        if self.run(self.box.ledger.get(job_id)) is None:
            return  # nobody has claimed a direct producer's task yet
        changed, status = self.run(self.box.ledger.cancel(job_id, "model"))
        job = self.jobs[job_id]
        assert changed == (not job.ended)
        job.canceled = job.canceled or changed
        assert (status == "canceled") == job.canceled

    # What always holds.

    @invariant()
    def counts_are_exact(self) -> None:
        records = self.run(self.box.ledger.get_many(list(self.jobs)))
        for (_, job), record in zip(self.jobs.items(), records, strict=True):
            if record is None:
                assert job.count("open") == len(job.resources)
                continue
            assert record.resource_completed == job.count("completed")
            assert record.resource_failed == job.count("failed")
            assert (record.status in {"done", "partial", "error", "canceled"}) == job.ended

    @invariant()
    def every_open_task_is_somewhere(self) -> None:
        places = self.run(self._places())
        for job in self.jobs.values():
            for resource in job.resources.values():
                if resource.state == "open" and not job.canceled:
                    key = (resource.task.job_id, resource.task.resource_id, resource.replay)
                    assert key in places, f"{key} is nowhere"

    async def _places(self) -> set[tuple[str, str, int]]:
        """Tasks that are unread or pending; an entry is pending under exactly one consumer by nature."""
        found: set[tuple[str, str, int]] = set()
        async with self.box.redis.pipeline(transaction=False) as pipeline:
            for stream in self.box.streams:
                pipeline.xinfo_groups(stream)
                pipeline.xpending_range(stream, keys.GROUP_WORKERS, "-", "+", 10_000)
                pipeline.zrange(keys.delayed(stream), 0, -1)
                pipeline.xrange(stream)
            replies = iter(await pipeline.execute())
        for (group,), pending, due, entries in zip(*[replies] * 4, strict=True):
            parked = {one["message_id"] for one in pending if one["consumer"] == b"_delayed"}
            assert parked == set(due), "whoever waits has a due time, and nobody else has one"
            waiting = {one["message_id"] for one in pending}
            last = _place(group["last-delivered-id"])
            for entry, fields in entries:
                if entry in waiting or _place(entry) > last:
                    one = DownloadTask.FromString(fields[b"payload"])
                    found.add((one.job_id, one.resource_id, one.replay))
        return found

    # The end: everybody dies, and one worker finishes everything.

    def teardown(self) -> None:
        try:
            for worker in WORKERS:
                self._die(worker)
            self.run(self._finish())
            self.counts_are_exact()
            self.run(self._everything_is_told())
        finally:
            self.run(self._close())
            self.loop.close()

    async def _finish(self) -> None:
        lane = await self.box.lane("last")
        while await self.box.pending() or not all(job.ended for job in self.jobs.values()):
            claims = await lane.claim(64, 0.05)
            for claim, one in zip(claims, await self.box.settle(lane, claims, Success()), strict=True):
                _, resource = self._of(claim)
                if one.outcome == "completed":
                    assert resource.state == "open", "settled once"
                    resource.state = "completed"
        await lane.stop()

    async def _everything_is_told(self) -> None:
        letters = {letter.id for letter in await self.box.letters()}
        told = {(log.job_id, log.resource_id) for log in await self.box.logs()}
        statuses = {status.job_id: status for status in sorted(await self.box.statuses(), key=lambda s: s.revision)}
        _, ended = await self.box.ledger.counts()
        assert ended == len(self.jobs)
        for job_id, job in self.jobs.items():
            for resource_id, resource in job.resources.items():
                if resource.state == "failed":
                    assert f"{job_id}/{resource_id}/{resource.replay}" in letters
                assert resource.state == "open" or (job_id, resource_id) in told
            if not job.canceled:
                said = statuses[job_id]
                assert (said.resources_completed, said.resources_failed) == (
                    job.count("completed"),
                    job.count("failed"),
                )
        left = {key.decode() for key in await self.box.redis.keys("{*") if not key.endswith(b":finals")}
        assert not left, "side keys of lanes"

    async def _close(self) -> None:
        for lane in list(self.box.lanes):
            await lane.stop()
        await self.box.clients.close()

    def _die(self, worker: str) -> None:
        lane = self.lanes[worker]
        self.held = [(owner, claim) for owner, claim in self.held if owner is not lane]
        self.run(self.box.die(lane))

    def _name(self, worker: str) -> str:
        self.names += 1
        return f"{worker}-{self.names}"

    def _of(self, claim: Claim) -> tuple[Job, Resource]:
        job = self.jobs[claim.task.job_id]
        return job, job.resources[claim.task.resource_id]


def _place(entry: bytes) -> tuple[int, int]:
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)


@pytest.mark.fault(5, 11)
def test_any_interleaving_settles_each_task_once(redis_server: str) -> None:
    """Also queue_faults rows 5 and 11 in all their variations."""
    Machine.addr = redis_server
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=most(30),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate],  # a failure is replayed by its seed: to shrink it takes minutes
        ),
    )
