"""Workers elsewhere, over gRPC: claims, leases, settlements, and what happens to those who come late."""

import asyncio
import base64
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.worker.v1.worker_service_pb2 import (
    ClaimTasksRequest,
    ClaimTasksResponse,
    CompleteTaskRequest,
    FailTaskRequest,
    HeartbeatRequest,
    PauseRequest,
    StoredObject,
)
from kernel.ids import uuid7
from kernel.log.topics import Topics
from kernel.queue.streams.lent import Lent
from tests.worker.conftest import Jobs, Start, duty, eventually, unread
from tests.worker.test_jobs import all_of

STORED = StoredObject(
    key="s3://elsewhere/x", size=3, sha256="a" * 64, content_type="text/plain", final_url="http://x/", http_status=200
)
URLS = {"a": "http://127.0.0.1/a", "b": "http://127.0.0.1/b"}


async def lender(config: Config, start_worker: Start) -> Any:
    """A worker service whose own slots take nothing."""
    service = await start_worker(config)
    duty(service, "runner").pause()
    await unread(service)
    return service


async def claim(stub: Any, worker: str, most: int = 10, wait: int = 2) -> ClaimTasksResponse:
    request = ClaimTasksRequest(worker_id=worker, max_tasks=most, wait=Duration(seconds=wait))
    response: ClaimTasksResponse = await stub.ClaimTasks(request)
    return response


async def claim_all(stub: Any, worker: str, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        more = (await claim(stub, worker)).tasks
        assert more, f"only {len(found)} of {count} came"
        found += more
    return found


async def complete(stub: Any, worker: str, name: str) -> str:
    answer = await stub.CompleteTask(CompleteTaskRequest(worker_id=worker, claim=name, object=STORED))
    return str(answer.outcome)


async def refused(call: Awaitable[Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_a_worker_elsewhere_does_a_job(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    worker_config.job_types["noop"].max_retries = 1
    await lender(worker_config, start_worker)
    job_id = await jobs.submit(URLS, "noop")
    worker = uuid7()
    tasks = {entry.task.resource_id: entry for entry in await claim_all(worker_stub, worker, 2)}
    assert set(tasks) == {"a", "b"}
    assert tasks["a"].task.url == URLS["a"]
    nothing = CompleteTaskRequest(worker_id=worker, claim=tasks["a"].claim)
    assert await refused(worker_stub.CompleteTask(nothing)) == grpc.StatusCode.INVALID_ARGUMENT
    assert await complete(worker_stub, worker, tasks["a"].claim) == "completed"
    assert await complete(worker_stub, worker, tasks["a"].claim) == "settled"
    failure = FailTaskRequest(
        worker_id=worker, claim=tasks["b"].claim, failure_code="DOWNLOAD_HTTP_503", failure_message="busy"
    )
    assert (await worker_stub.FailTask(failure)).outcome == "retrying"
    (again,) = await claim_all(worker_stub, worker, 1)
    assert (again.task.resource_id, again.task.attempt) == ("b", 2)
    assert await complete(worker_stub, worker, tasks["b"].claim) == "fenced"
    failure.claim = again.claim
    assert (await worker_stub.FailTask(failure)).outcome == "failed"
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("partial", "DOWNLOAD_HTTP_503")
    stored, failed = await jobs.results(job_id, "noop")
    assert (stored["key"], stored["sha256"], stored["state"]) == (STORED.key, STORED.sha256, "stored")
    assert (failed["attempts"], failed["error_message"]) == (2, "busy")
    topics = Topics(jobs.resources.redis, worker_config)
    (letter,) = await all_of(topics.dlq)
    assert (letter.task.resource_id, letter.attempts) == ("b", 2)
    lines = [line for line in await all_of(topics.logs) if line.fields.get("host")]
    assert [(line.fields["outcome"], line.fields["attempt"], line.fields.get("size", "")) for line in lines] == [
        *(("done", "1", "3"), ("retry", "1", ""), ("failed", "2", "")),
    ]
    assert {line.fields["host"] for line in lines} == {"127.0.0.1"}


async def test_an_empty_lane_answers_after_the_wait(
    worker_config: Config, start_worker: Start, worker_stub: Any
) -> None:
    await lender(worker_config, start_worker)
    answer = await claim(worker_stub, "nobody", wait=0)
    assert list(answer.tasks) == []
    assert answer.lease.ToMilliseconds() == 3000


@pytest.mark.fault(22)
async def test_a_lapsed_lease_gives_the_task_to_another_and_fences_the_late_one(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(2000)
    await lender(worker_config, start_worker)
    job_id = await jobs.submit({"a": URLS["a"]}, "noop")
    (first,) = await claim_all(worker_stub, "sleeper", 1)
    assert list((await worker_stub.Heartbeat(HeartbeatRequest(worker_id="sleeper"))).canceled) == []
    await asyncio.sleep(2.2)  # longer than the lease
    assert await refused(worker_stub.Heartbeat(HeartbeatRequest(worker_id="sleeper"))) == grpc.StatusCode.ABORTED
    assert await refused(complete(worker_stub, "sleeper", first.claim)) == grpc.StatusCode.ABORTED
    (second,) = await claim_all(worker_stub, "heir", 1)
    assert second.claim != first.claim
    assert await claim_is_over(worker_stub, "sleeper", first.claim)
    assert await complete(worker_stub, "heir", second.claim) == "completed"
    assert (await jobs.ended(job_id)).resource_completed == 1


async def claim_is_over(stub: Any, worker: str, name: str) -> bool:
    """Also once the sleeper has a new lease."""
    await claim(stub, worker, wait=0)
    return await refused(complete(stub, worker, name)) == grpc.StatusCode.ABORTED


@pytest.mark.fault(1)
async def test_heartbeats_keep_a_lease_and_tell_of_canceled_jobs(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    worker_config.worker.heartbeat_ttl.FromMilliseconds(2000)
    await lender(worker_config, start_worker)
    canceled = await jobs.submit({"a": URLS["a"]}, "noop")
    kept = await jobs.submit({"b": URLS["b"]}, "noop")
    claims = {entry.task.job_id: entry.claim for entry in await claim_all(worker_stub, "diligent", 2)}
    for _ in range(5):
        await asyncio.sleep(0.5)  # longer than the deadline
        assert list((await worker_stub.Heartbeat(HeartbeatRequest(worker_id="diligent"))).canceled) == []
    await jobs.ledger.cancel(canceled, "test")
    told = await worker_stub.Heartbeat(HeartbeatRequest(worker_id="diligent"))
    assert list(told.canceled) == [claims[canceled]]
    assert await complete(worker_stub, "diligent", claims[canceled]) == "absorbed"
    assert await complete(worker_stub, "diligent", claims[kept]) == "completed"
    assert (await jobs.ended(kept)).status == "done"


async def test_a_claim_survives_the_restart_of_the_service_that_lent_it(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    first = await lender(worker_config, start_worker)
    job_id = await jobs.submit(URLS, "noop")
    tasks = await claim_all(worker_stub, "traveller", 2)
    await first.drain(1)
    await first.stop()
    await lender(worker_config, start_worker)
    heartbeat = HeartbeatRequest(worker_id="traveller")
    assert list((await worker_stub.Heartbeat(heartbeat, wait_for_ready=True)).canceled) == []
    for entry in tasks:
        assert await complete(worker_stub, "traveller", entry.claim) == "completed"
    assert (await jobs.ended(job_id)).resource_completed == 2


async def test_nothing_that_was_not_lent_is_kept_from_the_workers_here(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    service = await lender(worker_config, start_worker)
    job_ids = [await jobs.submit({f"r{i}": f"http://127.0.0.1/{i}"}, "noop") for i in range(20)]
    (lent,) = (await claim(worker_stub, "modest", 1)).tasks
    duty(service, "runner").resume()

    async def rest_done() -> bool:
        records = await jobs.ledger.get_many(job_ids)
        return sum(record is not None and record.status == "done" for record in records) == 19

    await eventually(rest_done, 15)
    assert await complete(worker_stub, "modest", lent.claim) == "completed"
    assert (await jobs.ended(lent.task.job_id)).status == "done"


async def test_a_caller_that_hangs_up_takes_nothing_with_it(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    service = await lender(worker_config, start_worker)
    for _ in range(3):
        call = worker_stub.ClaimTasks(ClaimTasksRequest(worker_id="moody", max_tasks=5, wait=Duration(seconds=5)))
        await asyncio.sleep(0.2)
        call.cancel()
        job_id = await jobs.submit(URLS, "noop")
    await asyncio.sleep(0.6)  # longer than a claim that nobody waits for may go on
    duty(service, "runner").resume()
    assert (await jobs.ended(job_id, 5)).status == "done"


async def test_a_claim_that_is_none_or_anothers_is_refused(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    await lender(worker_config, start_worker)
    await jobs.submit({"a": URLS["a"]}, "noop")
    (lent,) = await claim_all(worker_stub, "owner", 1)
    for worker, name in (("owner", "nonsense"), ("thief", lent.claim), ("owner", "")):
        assert await refused(complete(worker_stub, worker, name)) == grpc.StatusCode.INVALID_ARGUMENT
    assert await complete(worker_stub, "owner", lent.claim) == "completed"


@pytest.mark.parametrize(
    "parts",
    [
        "0:0-0:1:0", "0:foo:1:0:0", "0:-:1:0:0", "0:1-1:1:-1:0", "0:1-1:-1:0:0", "-1:1-1:1:0:0", "99999:1-1:1:0:0",
        f"0:1-1:1:{10**30}:0", f"0:1-1:{10**30}:0:0", f"0:1-{10**30}:1:0:0", "0:1-1:1:0:0\n", "0:1-1:\u0661:0:0",
    ],
)  # fmt: skip
def test_a_malformed_name_is_no_claim(parts: str) -> None:
    name = base64.urlsafe_b64encode(f"w~1:{parts}".encode()).decode().rstrip("=")
    assert Lent.of(name) is None


@pytest.mark.parametrize("name", ["", "x", "AAAA", "é", "A" * 100_000, "_" * 7])
def test_what_is_no_name_is_no_claim(name: str) -> None:
    assert Lent.of(name) is None


def test_a_name_says_everything_again() -> None:
    lent = Lent("a_b-1~18c", 7, "1795831451119-12", 3 * 2**20 + 5, 2, 1)
    assert Lent.of(lent.name()) == lent


async def test_an_attempt_elsewhere_has_a_deadline_too(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    worker_config.worker.deadline.FromMilliseconds(300)
    worker_config.worker.max_retries = 0
    await lender(worker_config, start_worker)
    job_id = await jobs.submit({"a": URLS["a"]}, "noop")
    (lent,) = await claim_all(worker_stub, "slow", 1)
    await asyncio.sleep(0.5)  # longer than the deadline
    told = await worker_stub.Heartbeat(HeartbeatRequest(worker_id="slow"))
    assert list(told.canceled) == [lent.claim]
    record = await jobs.ended(job_id)
    assert (record.status, record.error_code) == ("error", "HANDLER_DEADLINE")


async def test_a_service_that_drains_lends_nothing(
    worker_config: Config, jobs: Jobs, start_worker: Start, worker_stub: Any
) -> None:
    service = await lender(worker_config, start_worker)
    await worker_stub.Pause(PauseRequest())
    await jobs.submit({"a": URLS["a"]}, "noop")
    await duty(service, "lending").drain(0)
    assert list((await claim(worker_stub, "late", wait=1)).tasks) == []
