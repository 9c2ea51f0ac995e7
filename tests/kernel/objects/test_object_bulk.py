"""Many objects removed at once, by a real SeaweedFS and by one that does not remove all of them."""

import asyncio
from collections.abc import Iterator

import pytest

from kernel.objects import ObjectStore, ObjectStoreError
from tests.kernel.objects.flaky_s3 import FlakyS3


def _refusing(*keys: str) -> str:
    errors = "".join(f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>" for key in keys)
    return f'<?xml version="1.0"?><DeleteResult>{errors}</DeleteResult>'


async def _fill(store: ObjectStore, bucket: str, keys: list[str]) -> None:
    await asyncio.gather(*(store.put(bucket, key, b"x") for key in keys))


async def test_whatever_their_names_are(store: ObjectStore, bucket: str) -> None:
    odd = ["a/b c", "ü/é€", "a+b=c&d?e#f", "x/" + "n" * 300, "a<b>'\"&amp;", "%2E/x"]
    await _fill(store, bucket, [*odd, "stays"])
    assert await store.delete_many(bucket, [*odd, "never/was", *odd]) == {}
    assert [info.key for info in await store.list(bucket)] == ["stays"]
    assert await store.delete_many(bucket, []) == {}


async def test_those_that_were_not_removed_are_tried_again(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    answers: Iterator[str] = iter([_refusing("p/1", "p/2")])
    await _fill(behind, bucket, ["p/1", "p/2"])
    flaky.faults = lambda method, target: next(answers, None) if method == "POST" else None
    assert await behind.delete_many(bucket, ["p/1", "p/2", "p/3"]) == {}
    assert await behind.list(bucket) == []
    again = [body for (method, _), body in zip(flaky.requests, flaky.bodies, strict=True) if method == "POST"][-1]
    assert b"p/2" in again
    assert b"p/3" not in again


async def test_those_that_remain_are_named(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    flaky.faults = lambda method, target: _refusing("p/2") if method == "POST" else None
    assert await behind.delete_many(bucket, ["p/1", "p/2"]) == {"p/2": "AccessDenied no"}


async def test_an_answer_that_was_lost_is_no_harm(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    answers: Iterator[str] = iter(["lost"])
    await _fill(behind, bucket, ["p/1"])
    flaky.faults = lambda method, target: next(answers, None) if method == "POST" else None
    assert await behind.delete_many(bucket, ["p/1"]) == {}
    assert await behind.list(bucket) == []


async def test_a_store_that_does_not_answer_is_an_error(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    flaky.faults = lambda method, target: "503"
    with pytest.raises(ObjectStoreError):
        await behind.delete_many(bucket, ["p/1"])
