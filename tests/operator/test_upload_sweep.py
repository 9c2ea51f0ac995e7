"""Uploads that killed workers leave behind are gone soon after their job's end, and no others."""

import pytest

from kernel.ledger import Ledger
from operator_svc.upload_sweep import LEAST_AGE_MS, UploadSweep


@pytest.fixture
def sweep(config, resources) -> UploadSweep:
    return UploadSweep(resources.objects, Ledger(resources.redis, config), config, least_age_ms=-2000)


def begun(s3_client, bucket: str, key: str) -> str:
    """An upload with a part, as a killed worker leaves it; its id."""
    upload_id = s3_client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    s3_client.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=1, Body=b"part")
    return upload_id


def left(s3_client, bucket: str) -> set[str]:
    return {entry["Key"] for entry in s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())}


async def test_uploads_of_ended_jobs_are_aborted_and_no_others(sweep, hand, s3_client, bucket, config, resources):
    ended = await hand.ended(1, "DOWNLOAD_HTTP_403")
    running = await hand.job()
    gone = [f"resources/default/{ended}/r1", f"own/prefix/{ended}/r1", f"{ended}/r1"]
    kept = [f"resources/default/{running}/r1", "named/by/the/manifest", f"resources/x/{ended}", f"a/{ended}x/b"]
    for key in (*gone, *kept):
        begun(s3_client, bucket, key)
    young = UploadSweep(resources.objects, Ledger(resources.redis, config), config)
    assert LEAST_AGE_MS <= 300_000, "within minutes"
    assert await young.run() == 0
    assert await sweep.run() == len(gone)
    assert left(s3_client, bucket) == set(kept)
    await hand.settle(running, 1, "DOWNLOAD_HTTP_403")
    await hand.settle(running, 2)
    assert await sweep.run() == 1


async def test_a_store_that_does_not_answer_stops_nothing(hand, config, resources):
    config.job_types["elsewhere"].storage.bucket = "no-such-bucket-here"
    sweep = UploadSweep(resources.objects, Ledger(resources.redis, config), config)
    assert await sweep.turn() == 0
    assert await sweep.turn() == 0
