"""Objects against a real SeaweedFS: what goes in comes out, faults are tried again, and errors have codes."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.embedded.ports import free_ports
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from kernel.errors import mapping
from kernel.objects import ObjectStore, ObjectStoreError, metadata
from tests.examples import most
from tests.kernel.objects.flaky_s3 import FlakyS3

_TEXT = st.text(st.characters(exclude_characters="/\\", exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)


@pytest.mark.req("R001-1.44", "R001-1.30")
@settings(max_examples=most(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.lists(_TEXT.filter(lambda s: s not in {".", ".."}), min_size=1, max_size=4).map("/".join),
    body=st.binary(max_size=4096),
    tags=st.dictionaries(
        _TEXT, st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60), max_size=4
    ),
)
async def test_what_is_put_is_what_comes_back(
    store: ObjectStore, bucket: str, key: str, body: bytes, tags: dict[str, str]
) -> None:
    assert await store.put(bucket, key, body, content_type="text/x-test", metadata=tags)
    assert await store.get(bucket, key) == body
    info = await store.head(bucket, key)
    assert info is not None
    assert info.size == len(body)
    assert info.content_type == "text/x-test"
    lowered = {name.lower(): value for name, value in tags.items()}
    left_out = int(info.metadata.get(metadata.LEFT_OUT, "0"))
    assert len(lowered) - left_out == len(info.metadata.keys() - {metadata.LEFT_OUT})
    assert all(lowered[name] == value for name, value in info.metadata.items() if name != metadata.LEFT_OUT)
    await store.delete(bucket, key)
    assert not await store.exists(bucket, key)


async def test_user_metadata_never_becomes_a_header_of_its_own(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    tags = {"Content-Type": "evil/type", "Cache-Control": "no", "content-encoding": "gzip", "Storage-Class": "GLACIER"}
    await store.put(bucket, "k", b"body", content_type="text/plain", metadata=tags)
    stored = s3_client.head_object(Bucket=bucket, Key="k")
    assert stored["ContentType"] == "text/plain"
    assert "ContentEncoding" not in stored
    assert "CacheControl" not in stored
    assert metadata.decode(stored["Metadata"]) == {name.lower(): value for name, value in tags.items()}


async def test_the_key_is_the_same_for_every_client(store: ObjectStore, s3_client: Any, bucket: str) -> None:
    keys = ["a/b c", "a%2Fb/x%20y", "ü/é€", "a+b=c&d?e#f", "a~b'(x)*!", "%2E%2E/x", "a:b@c;d,e$f"]
    for key in keys:
        await store.put(bucket, key, key.encode())
        assert s3_client.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert sorted(info.key for info in await store.list(bucket)) == sorted(keys)


async def test_a_missing_object_is_none(store: ObjectStore, bucket: str) -> None:
    assert await store.get(bucket, "no/such") is None
    assert await store.head(bucket, "no/such") is None
    assert not await store.exists(bucket, "no/such")
    await store.delete(bucket, "no/such")
    with pytest.raises(FileNotFoundError):
        async for _ in store.chunks(bucket, "no/such"):
            pass


async def test_pages_of_a_listing(store: ObjectStore, bucket: str) -> None:
    for n in range(25):
        await store.put(bucket, f"p/{n:02}", b"x")
    await store.put(bucket, "q/0", b"x")
    seen: list[str] = []
    while page := await store.list(bucket, "p/", after=seen[-1] if seen else "", limit=10):
        assert len(page) <= 10
        seen += [info.key for info in page]
    assert seen == [f"p/{n:02}" for n in range(25)]


async def test_folders_are_what_lies_directly_below(store: ObjectStore, bucket: str) -> None:
    for key in ("folders/b=2/x", "folders/b=2/c/y", "folders/a=1/x", "folders/z"):
        await store.put(bucket, key, b".")
    assert await store.folders(bucket, "folders/") == ["a=1", "b=2"]
    assert await store.folders(bucket, "folders/b=2/") == ["c"]
    assert await store.folders(bucket, "nowhere/") == []


async def test_a_large_object_comes_in_chunks(store: ObjectStore, bucket: str) -> None:
    body = bytes(range(256)) * 20_000
    await store.put(bucket, "large", body)
    chunks = [chunk async for chunk in store.chunks(bucket, "large")]
    assert len(chunks) > 1
    assert b"".join(chunks) == body


async def test_only_one_of_many_creates_an_object(store: ObjectStore, bucket: str) -> None:
    created = await asyncio.gather(*(store.put(bucket, "once", f"{n}".encode(), if_absent=True) for n in range(16)))
    assert sum(created) == 1
    assert await store.get(bucket, "once") == f"{created.index(True)}".encode()


async def test_a_busy_store_is_tried_again_with_the_same_bytes(
    behind: ObjectStore, flaky: FlakyS3, bucket: str
) -> None:
    answers = iter(["503", "reset"])
    flaky.faults = lambda method, target: next(answers, None)
    assert await behind.put(bucket, "k", b"body")
    assert [body for (method, _), body in zip(flaky.requests, flaky.bodies, strict=True) if method == "PUT"] == [
        b"body"
    ] * 3
    flaky.faults = lambda method, target: None
    assert await behind.get(bucket, "k") == b"body"


async def test_a_create_whose_answer_was_lost_is_still_our_own(
    behind: ObjectStore, flaky: FlakyS3, bucket: str
) -> None:
    answers = iter(["lost"])
    flaky.faults = lambda method, target: next(answers, None)
    assert await behind.put(bucket, "k", b"mine", if_absent=True)
    assert not await behind.put(bucket, "k", b"other", if_absent=True)
    assert await behind.get(bucket, "k") == b"mine"


async def _code(store: ObjectStore, bucket: str) -> str:
    with pytest.raises(ObjectStoreError) as caught:
        await store.put(bucket, "k", b"body")
    assert caught.value.reason == errors_pb2.REASON_UNAVAILABLE
    assert mapping(caught.value.reason).http_status == 503
    return caught.value.failure


async def test_a_store_that_stays_broken_is_upload_failed(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    flaky.faults = lambda method, target: "500"
    assert await _code(behind, bucket) == "UPLOAD_FAILED"
    assert len(flaky.requests) == 3
    with pytest.raises(ObjectStoreError) as caught:
        await behind.get(bucket, "k")
    assert caught.value.failure == "STORAGE_UNAVAILABLE"


async def test_no_bucket_is_not_tried_again(behind: ObjectStore, flaky: FlakyS3, bucket: str) -> None:
    flaky.faults = lambda method, target: "404"
    assert await _code(behind, bucket) == "STORAGE_NO_BUCKET"
    assert len(flaky.requests) == 1
    with pytest.raises(ObjectStoreError) as caught:
        await behind.check()
    assert caught.value.failure == "STORAGE_NO_BUCKET"


async def test_wrong_credentials_are_denied(config: Config, bucket: str) -> None:
    config.object_store.secret_access_key = "wrong"
    store = ObjectStore(config.object_store)
    assert await _code(store, bucket) == "STORAGE_DENIED"
    with pytest.raises(ObjectStoreError) as caught:
        await store.ensure_bucket()
    assert caught.value.failure == "STORAGE_DENIED"
    with pytest.raises(ObjectStoreError) as caught:
        await store.check()
    assert caught.value.failure == "STORAGE_DENIED"
    await store.close()


async def test_a_store_that_is_down_is_unavailable(config: Config, bucket: str) -> None:
    config.object_store.endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    config.object_store.put_attempts = 1
    store = ObjectStore(config.object_store)
    assert await _code(store, bucket) == "STORAGE_UNAVAILABLE"
    with pytest.raises(ObjectStoreError) as caught:
        await store.check()
    assert caught.value.failure == "STORAGE_UNAVAILABLE"
    await store.close()
    await store.close()


async def test_a_bucket_is_made_once_and_keeps_its_other_rules(store: ObjectStore, s3_client: Any) -> None:
    name = "fetchbox-rules"
    await store.ensure_bucket(name)
    other = {"ID": "others", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 1}}
    s3_client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [other]})
    await store.ensure_bucket(name)
    await store.ensure_bucket(name)
    rules = s3_client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert sorted(rule["ID"] for rule in rules) == ["fetchbox-stale-uploads", "others"]
    stale = next(rule for rule in rules if rule["ID"] == "fetchbox-stale-uploads")
    assert stale["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}


async def test_check_passes_on_a_healthy_store(store: ObjectStore, bucket: str) -> None:
    await store.check()
