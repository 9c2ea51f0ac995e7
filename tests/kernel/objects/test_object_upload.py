"""Uploads of unknown length: whole or not at all, aborted on every failing path, bounded in memory."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.embedded.seaweed import SeaweedFS
from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import ObjectStore, ObjectStoreError
from tests.kernel.objects.flaky_s3 import FlakyS3

_MB = 1 << 20
_PART = 5 * _MB
_BODY = random.Random(7).randbytes(17 * _MB)


class _StopError(Exception):
    pass


@pytest.fixture
async def store(flaky: FlakyS3, config: Config) -> AsyncIterator[ObjectStore]:
    config.object_store.endpoint = flaky.endpoint
    config.object_store.put_attempts = 2
    config.object_store.part_size = config.object_store.multipart_threshold = _PART
    store = ObjectStore(config.object_store)
    yield store
    await store.close()


async def _send(store: ObjectStore, bucket: str, body: bytes = _BODY, step: int = 300_000) -> None:
    async with store.upload(bucket, "big", content_type="video/x", metadata={"näme": "wért"}) as upload:
        for start in range(0, len(body), step):
            await upload.write(body[start : start + step])
        info = await upload.commit()
    assert info.size == len(body)


def _nothing_left(s3_client: Any, bucket: str) -> bool:
    listed = s3_client.list_objects_v2(Bucket=bucket).get("Contents", [])
    uploads = s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return not listed and not uploads


@pytest.mark.parametrize("size", [0, 1, _PART, _PART + 1, 2 * _PART, len(_BODY)])
async def test_bytes_arrive_whole(store: ObjectStore, flaky: FlakyS3, bucket: str, size: int) -> None:
    await _send(store, bucket, _BODY[:size])
    assert await store.get(bucket, "big") == _BODY[:size]
    info = await store.head(bucket, "big")
    assert info is not None
    assert (info.content_type, info.metadata) == ("video/x", {"näme": "wért"})
    assert any("uploadId" in target for _, target in flaky.requests) is (size > _PART)


async def test_one_chunk_larger_than_many_parts(store: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    await _send(store, bucket, step=len(_BODY))
    assert await store.get(bucket, "big") == _BODY
    assert flaky.most_parts_in_flight <= 2


async def test_no_object_before_the_commit_and_none_without_it(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    async with store.upload(bucket, "big") as upload:
        await upload.write(_BODY)
        assert not await store.exists(bucket, "big")
    assert _nothing_left(s3_client, bucket)


async def test_an_error_of_the_source_aborts(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    async def broken() -> None:
        async with store.upload(bucket, "big") as upload:
            await upload.write(_BODY)
            raise _StopError

    with pytest.raises(_StopError):
        await broken()
    assert _nothing_left(s3_client, bucket)


async def test_a_small_body_without_commit_leaves_nothing(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    async with store.upload(bucket, "big") as upload:
        await upload.write(b"small")
    assert _nothing_left(s3_client, bucket)


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancellation_in_mid_upload_aborts(
    store: ObjectStore, flaky: FlakyS3, s3_client: Any, bucket: str, cancels: int
) -> None:
    sending = asyncio.Event()

    def watch(method: str, target: str) -> str | None:
        if "partNumber=2" in target:
            sending.set()
        return "slow" if "partNumber=" in target else None

    flaky.faults = watch
    task = asyncio.create_task(_send(store, bucket))
    await sending.wait()
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.close()
    assert _nothing_left(s3_client, bucket)
    # An abort while a part is still on its way would leave that part behind.
    assert flaky.in_flight_at_abort == [0]


@pytest.mark.parametrize("cancels", [1, 3])
@pytest.mark.parametrize("fault", ["slow", "503"])
async def test_a_creation_that_is_cancelled_is_finished_and_then_undone(
    store: ObjectStore, flaky: FlakyS3, s3_client: Any, bucket: str, cancels: int, fault: str
) -> None:
    """The store may have made the upload already: only its answer says what there is to abort."""
    creating, created = asyncio.Event(), 0

    def watch(method: str, target: str) -> str | None:
        nonlocal created
        if method != "POST" or "uploads" not in target:
            return None
        creating.set()
        created += 1
        return fault if created == 1 else "slow"

    flaky.faults = watch
    task = asyncio.create_task(_send(store, bucket))
    await creating.wait()
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.close()
    await flaky.quiet()
    assert _nothing_left(s3_client, bucket)


async def test_a_part_that_fails_once_is_sent_again_from_memory(
    store: ObjectStore, flaky: FlakyS3, bucket: str
) -> None:
    answers = iter(["503"])
    flaky.faults = lambda method, target: next(answers, None) if "partNumber=2" in target else None
    await _send(store, bucket)
    assert await store.get(bucket, "big") == _BODY


async def test_a_part_that_fails_for_good_aborts(
    store: ObjectStore, flaky: FlakyS3, s3_client: Any, bucket: str
) -> None:
    flaky.faults = lambda method, target: "500" if "partNumber=2" in target else None
    with pytest.raises(ObjectStoreError) as caught:
        await _send(store, bucket)
    assert caught.value.failure == "UPLOAD_FAILED"
    assert _nothing_left(s3_client, bucket)


async def test_a_commit_that_fails_for_good_aborts(
    store: ObjectStore, flaky: FlakyS3, s3_client: Any, bucket: str
) -> None:
    flaky.faults = lambda method, target: "500" if method == "POST" and "uploadId=" in target else None
    with pytest.raises(ObjectStoreError) as caught:
        await _send(store, bucket)
    assert caught.value.failure == "UPLOAD_FAILED"
    assert _nothing_left(s3_client, bucket)


@pytest.mark.parametrize("faults", [["lost"], ["lost", "gone"]], ids=["repeatable", "forgotten"])
async def test_a_commit_whose_answer_was_lost_succeeds(
    store: ObjectStore, flaky: FlakyS3, bucket: str, faults: list[str]
) -> None:
    """SeaweedFS answers a repeated commit like the first; other stores no longer know the upload."""
    answers = iter(faults)
    flaky.faults = lambda method, target: next(answers, None) if method == "POST" and "uploadId=" in target else None
    await _send(store, bucket)
    assert await store.get(bucket, "big") == _BODY


async def test_an_upload_that_the_store_forgot_fails(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    async def forgotten() -> None:
        async with store.upload(bucket, "big") as upload:
            await upload.write(_BODY[: _PART * 2])
            for listed in s3_client.list_multipart_uploads(Bucket=bucket)["Uploads"]:
                s3_client.abort_multipart_upload(Bucket=bucket, Key=listed["Key"], UploadId=listed["UploadId"])
            await upload.commit()

    with pytest.raises(ObjectStoreError) as caught:
        await forgotten()
    assert caught.value.failure == "UPLOAD_FAILED"
    assert _nothing_left(s3_client, bucket)


async def test_an_ended_upload_takes_nothing_more(store: ObjectStore, bucket: str) -> None:
    async with store.upload(bucket, "big") as upload:
        await upload.write(b"x")
        await upload.commit()
        with pytest.raises(RuntimeError):
            await upload.write(b"y")
        with pytest.raises(RuntimeError):
            await upload.commit()
    assert await store.get(bucket, "big") == b"x"


async def test_a_store_killed_in_mid_upload_and_restarted(config: Config, tmp_path: Path) -> None:
    server = SeaweedFS(tmp_path)
    server.start()
    try:
        config.object_store.endpoint = server.endpoint
        config.object_store.access_key_id = server.access_key_id
        config.object_store.secret_access_key = server.secret_access_key
        config.object_store.put_attempts = 8
        config.object_store.part_size = config.object_store.multipart_threshold = _PART
        store = ObjectStore(config.object_store)
        await store.ensure_bucket("fetchbox")
        await store.put("fetchbox", "before", b"kept")
        async with contextlib.aclosing(store.chunks("fetchbox", "before")) as chunks:
            assert [chunk async for chunk in chunks] == [b"kept"]
        async with store.upload("fetchbox", "big") as upload:
            await upload.write(_BODY[: _PART + 1])
            server.kill9()
            writing = asyncio.create_task(upload.write(_BODY[_PART + 1 :]))
            await asyncio.to_thread(server.start)
            await writing
            await upload.commit()
        assert await store.get("fetchbox", "before") == b"kept"
        assert await store.get("fetchbox", "big") == _BODY
        await store.close()
    finally:
        server.stop()
