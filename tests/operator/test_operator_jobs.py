"""Snapshots, listings, cancel, export: what operators read of the ledger."""

import asyncio
from itertools import chain

import grpc
import pytest
from google.protobuf import json_format

from fetchbox.operator.v1 import operator_service_pb2 as pb
from fetchbox.operator.v1 import operator_service_pb2_grpc
from kernel import pages
from operator_svc.bootstrap import build


def printed(message) -> dict:
    return json_format.MessageToDict(message, always_print_fields_with_no_presence=True)


@pytest.mark.req(
    "R001-2.03", "R001-2.04", "R001-2.05", "R001-2.06", "R001-2.08", "R001-2.09", "R001-2.10", "R001-2.11", "R001-2.12"
)
async def test_the_snapshot_has_the_fields_of_the_seed(operator, hand):
    job_id = await hand.job(42, job_type="gallery", tenant="crawler-a")
    job = printed(await operator.GetJob(pb.GetJobRequest(job_id=job_id)))
    assert job["job_id"] == job_id
    assert job["job_type"] == "gallery"
    assert job["status"] == "queued"
    assert job["created_at"] == job["updated_at"]
    assert job["created_at"].endswith("Z")
    assert (job["resource_total"], job["resource_completed"], job["resource_failed"]) == (42, 0, 0)
    assert job["manifest_key"] == f"s3://fetchbox/manifests/gallery/{job_id}/metadata.json"
    assert job["log_cursor"]["stream"] == "jobs.logs"
    assert int(job["log_cursor"]["offset"]) > 0
    assert isinstance(job["log_cursor"]["offset"], str)
    assert "last_error" not in job
    assert job["tenant"] == "crawler-a"


@pytest.mark.req("R001-2.05", "R001-2.07")
async def test_status_words_and_updated_at_follow_the_job(operator, hand):
    job_id = await hand.job(3)
    seen = []
    for index, code in ((1, ""), (2, "DOWNLOAD_DNS"), (3, "")):
        seen.append(await operator.GetJob(pb.GetJobRequest(job_id=job_id)))
        await asyncio.sleep(0.002)
        await hand.settle(job_id, index, code)
    seen.append(await operator.GetJob(pb.GetJobRequest(job_id=job_id)))
    assert seen[-1].status == "partial"
    times = [job.updated_at.ToNanoseconds() for job in seen]
    assert times == sorted(set(times)), "every change moves updated_at"
    failed = await hand.ended(1, "DOWNLOAD_DNS")
    done = await hand.ended(2)
    canceled = await hand.job()
    await operator.CancelJob(pb.CancelJobRequest(job_id=canceled))
    words = [(await operator.GetJob(pb.GetJobRequest(job_id=j))).status for j in (failed, done, canceled)]
    assert words == ["failed", "completed", "canceled"]


@pytest.mark.parametrize(("code", "shown"), [("DOWNLOAD_HTTP_403", "HTTP_403"), ("DOWNLOAD_DNS", "DOWNLOAD_DNS")])
@pytest.mark.req("R001-2.13", "R001-2.14")
async def test_the_last_error_has_the_operators_code_and_no_secret(operator, hand, code, shown):
    job_id = await hand.job(1)
    await hand.settle(job_id, 1, code, "GET https://u:p@h/x?X-Amz-Signature=feed&page=2 was refused")
    error = (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).last_error
    assert error.code == shown
    assert error.message == "GET https://REDACTED@h/x?X-Amz-Signature=REDACTED&page=2 was refused"


@pytest.mark.req("R001-2.03")
async def test_an_unknown_job_is_not_found_everywhere(operator, refused):
    with refused("NOT_FOUND"):
        await operator.GetJob(pb.GetJobRequest(job_id="nobody"))
    with refused("NOT_FOUND"):
        await operator.CancelJob(pb.CancelJobRequest(job_id="nobody"))
    with refused("NOT_FOUND"):
        [event async for event in operator.WatchJob(pb.WatchJobRequest(job_id="nobody"))]
    with refused("NOT_FOUND"):
        [entry async for entry in operator.StreamJobLogs(pb.StreamJobLogsRequest(job_id="nobody"))]
    with refused("INVALID_PAYLOAD"):
        await operator.GetJob(pb.GetJobRequest(job_id="../x"))


async def test_cancel_tells_the_stream_and_leaves_an_ended_job_as_it_is(operator, hand):
    job_id = await hand.job()
    assert (await operator.CancelJob(pb.CancelJobRequest(job_id=job_id))).status == "canceled"
    first = await hand.ledger.get(job_id)
    assert (await operator.CancelJob(pb.CancelJobRequest(job_id=job_id))).status == "canceled"
    assert await hand.ledger.get(job_id) == first
    partition = hand.topics.status.partition_of(job_id)
    told = [r.message for r in await hand.topics.status.read(partition) if r.message.job_id == job_id]
    assert {(status.last_error_code, status.revision) for status in told} == {("SYSTEM_CANCELED", first.revision)}
    done = await hand.ended()
    assert (await operator.CancelJob(pb.CancelJobRequest(job_id=done))).status == "completed"


def flat(found: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


async def every_page(operator, **request) -> list[list[str]]:
    pages, token = [], ""
    while True:
        answer = await operator.ListJobs(pb.ListJobsRequest(page_token=token, **request))
        pages.append([job.job_id for job in answer.jobs])
        token = answer.next_page_token
        if not token:
            return pages


async def test_pages_hold_every_job_once_newest_first(operator, hand):
    ids = [await hand.job(1) for _ in range(23)]
    pages = await every_page(operator, page_size=5)
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    assert sorted(flat(pages)) == sorted(ids)
    created = [(await hand.ledger.get(job_id)).created_ms for job_id in flat(pages)]
    assert created == sorted(created, reverse=True)


async def test_filters_and_their_tokens(operator, hand, refused):
    mine = [await hand.ended(1, tenant="a") for _ in range(3)]
    await hand.job(1, tenant="a")
    await hand.ended(1, tenant="b")
    await hand.job(1, tenant="a", job_type="other")
    assert sorted(flat(await every_page(operator, tenant="a", status="completed", page_size=2))) == sorted(mine)
    assert len(flat(await every_page(operator, tenant="a"))) == 5
    assert len(flat(await every_page(operator, job_type="other"))) == 1
    token = (await operator.ListJobs(pb.ListJobsRequest(page_size=1))).next_page_token
    assert token
    with refused("INVALID_PAYLOAD"):
        await operator.ListJobs(pb.ListJobsRequest(page_token=token, tenant="a"))
    foreign = (pages.token(cursor, ("", "", "", "")) for cursor in ("(1/x", "x"))
    for bad in ("x", "!!!", token[:-3], "bnVsbA", *foreign):
        with refused("INVALID_PAYLOAD"):
            await operator.ListJobs(pb.ListJobsRequest(page_token=bad))
    with refused("INVALID_PAYLOAD"):
        await operator.ListJobs(pb.ListJobsRequest(status="done"))


@pytest.mark.fault(60)
async def test_a_listing_skips_what_is_pruned_between_its_pages(operator, hand):
    ids = [await hand.ended() for _ in range(60)]
    first = await operator.ListJobs(pb.ListJobsRequest(page_size=10))
    doomed = set(ids[::2])

    async def prune() -> None:
        later = await hand.clients.now_ms() + 1000
        for job_id in doomed:
            # The record goes first, as when a pruner stops between the two: the index then names nothing.
            await hand.clients.commands.delete(f"job:{job_id}")
            await asyncio.sleep(0)
            await hand.ledger.delete(job_id, later)

    pruning = asyncio.create_task(prune())
    listed, token = [job.job_id for job in first.jobs], first.next_page_token
    while token:
        answer = await operator.ListJobs(pb.ListJobsRequest(page_size=10, page_token=token))
        listed += [job.job_id for job in answer.jobs]
        token = answer.next_page_token
    await pruning
    assert len(listed) == len(set(listed))
    assert set(ids) - doomed <= set(listed)
    assert set(flat(await every_page(operator))) == set(ids) - doomed


@pytest.mark.req("R001-4.05")
async def test_the_export_has_every_job_oldest_first(operator, hand):
    ended = [await hand.ended() for _ in range(3)]
    opened = await hand.job()
    everything = [job async for job in operator.ExportJobs(pb.ExportJobsRequest())]
    assert sorted(job.job_id for job in everything) == sorted([*ended, opened])
    created = [job.created_at.ToNanoseconds() for job in everything]
    assert created == sorted(created)
    only = [job async for job in operator.ExportJobs(pb.ExportJobsRequest(ended_only=True))]
    assert [job.status for job in only] == ["completed"] * 3


@pytest.mark.req("R001-2.02")
async def test_without_tokens_anyone_may_operate(operator, hand):
    job_id = await hand.job()
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).job_id == job_id


@pytest.mark.req("R001-2.01")
async def test_with_tokens_only_an_operators_opens(config, resources, hand, refused):
    config.security.operator_tokens.append("op-secret")
    config.security.tenant_tokens["tenant-secret"] = "crawler-a"
    running = await build(config, resources)
    await running.start()
    try:
        job_id = await hand.job()
        async with grpc.aio.insecure_channel(config.operator.listen) as channel:
            stub = operator_service_pb2_grpc.OperatorServiceStub(channel)

            async def get(*metadata):
                return await stub.GetJob(pb.GetJobRequest(job_id=job_id), metadata=metadata)

            with refused("UNAUTHORIZED"):
                await get()
            with refused("UNAUTHORIZED"):
                await get(("authorization", "Bearer wrong"))
            with refused("FORBIDDEN"):
                await get(("authorization", "Bearer tenant-secret"))
            with refused("UNAUTHORIZED"):
                [event async for event in stub.WatchJob(pb.WatchJobRequest(job_id=job_id))]
            assert (await get(("authorization", "Bearer op-secret"))).job_id == job_id
    finally:
        await running.stop()
