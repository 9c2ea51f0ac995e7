"""Files on their way into the store: whole and right whatever they are, and whatever happens to them meanwhile."""

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cli.embedded.ports import free_ports
from fetchbox.config.v1.config_pb2 import Config
from kernel.objects import LARGEST, part_size
from tests.examples import most
from tests.kernel.objects.flaky_s3 import FlakyS3
from tests.worker.conftest import eventually
from tests.worker.file_rig import Files, files_of, open_descriptors

_PART = 5 * 1024 * 1024
_BIG = 3 * _PART + 12_345


@pytest.fixture
async def files(flaky: FlakyS3, config: Config, tmp_path: Path) -> AsyncIterator[Files]:
    """Files whose store lets a test do something when a request comes."""
    config.object_store.endpoint = flaky.endpoint
    config.object_store.put_attempts = 2
    config.object_store.part_size = config.object_store.multipart_threshold = _PART
    root = tmp_path / "in"
    root.mkdir()
    async with files_of(config, root) as made:
        yield made


def _content(size: int) -> bytes:
    """Bytes no two megabytes of which are alike."""
    return b"".join(hashlib.sha256(str(i).encode()).digest() for i in range(-(-size // 32)))[:size]


def _nothing_left(s3_client: Any, bucket: str) -> bool:
    listed = s3_client.list_objects_v2(Bucket=bucket).get("Contents", [])
    uploads = s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return not listed and not uploads


_NAME = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=255).filter(
    lambda name: name not in {".", ".."} and len(name.encode()) <= 255 and not name.endswith(".manifest.json")
)
_SIZES = st.one_of(st.binary(max_size=2000), st.sampled_from([0, 65_536, 65_537, _PART, _PART + 1]).map(_content))


@settings(
    max_examples=most(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(names=st.lists(_NAME, min_size=1, max_size=4), body=_SIZES)
@example(names=["a b", "%41%2F", "..\\..", "~"], body=b"x")
@example(names=["...", "\n\r\t\x7f", "\ufffe", "c:", "*?<>|\"'"], body=b"x")
@example(names=["Ж" * 127, "名" * 85, "🦊" * 63], body=b"x")
@example(names=["e\u0301", "\u00e9", "\u202egpj.exe"], body=b"x")
async def test_any_bytes_under_any_name_arrive_whole(
    config: Config, tmp_path_factory: pytest.TempPathFactory, names: list[str], body: bytes
) -> None:
    config.object_store.part_size = config.object_store.multipart_threshold = _PART
    root = tmp_path_factory.mktemp("any")
    config.worker.file_key_prefix = f"any/{root.name}/"
    async with files_of(config, root) as files:
        path = files.drop("/".join(names), body)
        await files.done(path, job_id="Ж and \n")
        (key,) = await files.keys()
        assert key.isascii()
        stored, info = await files.stored(key.removeprefix(files.prefix))
    sha256 = hashlib.sha256(body).hexdigest()
    assert (stored == body, info.metadata["sha256"], info.metadata["size"]) == (True, sha256, str(len(body)))
    segments = key.removeprefix(files.prefix).split("/")
    encoded = [len(part.encode()) for part in segments]
    if "~" not in key:
        assert [unquote(part) for part in segments] == names
    assert max(encoded) <= 255
    if "fetchbox-left-out" not in info.metadata:
        assert info.metadata["path"] == str(path)
        assert info.metadata["job-id"] == "Ж and \n"


def test_parts_are_as_large_as_they_must_be() -> None:
    for size in (0, _PART, 80 << 30, 1 << 40, LARGEST):
        part = part_size(size, _PART)
        assert part >= _PART
        assert -(-size // part) <= 10_000
    assert part_size(10_000 * _PART, _PART) == _PART


async def test_a_file_of_any_size_takes_little_memory(config: Config, tmp_path: Path) -> None:
    """Sparse: a terabyte of nothing is a file too, but this machine would not like to hash it."""
    config.object_store.part_size = config.object_store.multipart_threshold = _PART
    size = 24 * _PART + 1
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    async with files_of(config, tmp_path) as files:
        tracemalloc.start()
        try:
            await files.done(tmp_path / "sparse")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        info = await files.objects.head(files.objects.bucket, "files/sparse")
    assert info is not None
    assert (info.size, info.metadata["sha256"]) == (size, hashlib.sha256(bytes(size)).hexdigest())
    assert peak < 8 * _PART


async def test_a_file_that_no_object_can_hold_is_not_even_read(files: Files) -> None:
    with (files.root / "huge").open("wb") as file:
        file.truncate(LARGEST + 1)
    async with asyncio.timeout(20):
        failure = await files.failed(files.root / "huge")
    assert failure.code == "VALIDATION_FILE_TOO_LARGE"


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10_000)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    found = path.stat()
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.rename(path)


def _replace_by_one_of_two_links(path: Path) -> None:
    _replace(path)
    path.with_name("link").hardlink_to(path)


def _overwrite_in_secret(path: Path) -> None:
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"OTHER")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


_CHANGES = [
    _append,
    _shrink,
    _empty,
    _replace,
    _replace_by_one_of_two_links,
    _overwrite_in_secret,
    _replace_by_a_pipe,
]


def _upon(flaky: FlakyS3, wanted: Callable[[str, str], bool], act: Callable[[], None]) -> list[str]:
    """Has `act` done when the first such request comes, and before the store sees it."""
    seen: list[str] = []

    def watch(method: str, target: str) -> None:
        if not seen and wanted(method, target):
            seen.append(target)
            act()

    flaky.faults = watch
    return seen


@pytest.mark.parametrize("change", _CHANGES)
async def test_a_large_file_that_changes_while_it_is_sent_is_not_stored(
    files: Files, flaky: FlakyS3, s3_client: Any, bucket: str, change: Callable[[Path], None]
) -> None:
    """It changes when the upload is created: its second half is read only after that."""
    path = files.drop("big", _content(_BIG))
    seen = _upon(flaky, lambda _, target: target.endswith("?uploads"), lambda: change(path))
    failure = await files.failed(path)
    assert seen
    assert (failure.code, failure.counts) == ("HANDLER_FILE_CHANGED", True)
    assert _nothing_left(s3_client, bucket)


@pytest.mark.parametrize("size", [10_001, 100_000])
@pytest.mark.parametrize("change", _CHANGES)
async def test_a_small_file_that_changes_while_it_is_put_is_tried_again(
    files: Files, flaky: FlakyS3, change: Callable[[Path], None], size: int
) -> None:
    """What was put is one whole version; but a slow put may have come after that of a newer one."""
    body = _content(size)
    path = files.drop("small", body)
    seen = _upon(flaky, lambda method, _: method == "PUT", lambda: change(path))
    failure = await files.failed(path)
    assert seen
    assert failure.code == "HANDLER_FILE_CHANGED"
    assert (await files.stored("small"))[0] == body
    if change is not _replace_by_a_pipe:
        await files.done(path)
        assert (await files.stored("small"))[0] == path.read_bytes()


@pytest.mark.parametrize("size", [100, _BIG])
@pytest.mark.parametrize("leave", [Path.unlink, lambda path: path.rename(path.with_name("away"))])
async def test_a_file_that_leaves_while_it_is_read_arrives_whole(
    files: Files, flaky: FlakyS3, leave: Callable[[Path], None], size: int
) -> None:
    body = _content(size)
    path = files.drop("leaving", body)
    seen = _upon(flaky, lambda method, _: method in {"PUT", "POST"}, lambda: leave(path))
    await files.done(path)
    assert seen
    assert (await files.stored("leaving"))[0] == body
    assert (await files.failed(path)).code == "VALIDATION_FILE_MISSING"


async def test_a_large_file_that_is_written_to_once_it_is_visible_is_tried_again(files: Files, flaky: FlakyS3) -> None:
    path = files.drop("big", _content(_BIG))
    completes = lambda method, target: method == "POST" and "uploadId=" in target  # noqa: E731 - short as it is
    assert _upon(flaky, completes, lambda: _append(path)) is not None
    assert (await files.failed(path)).code == "HANDLER_FILE_CHANGED"
    await files.done(path)
    assert (await files.stored("big"))[0] == path.read_bytes()


async def test_an_outage_of_the_store_costs_no_attempt(config: Config, tmp_path: Path) -> None:
    config.object_store.endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
    config.object_store.put_attempts = 1
    async with files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("file", b"x"))
    assert (failure.code, failure.counts, failure.retry_after) == ("STORAGE_UNAVAILABLE", False, 10.0)


@pytest.mark.parametrize("size", [10, _BIG])
async def test_an_answer_of_the_store_that_is_an_error_costs_one(files: Files, flaky: FlakyS3, size: int) -> None:
    flaky.faults = lambda method, _: "500" if method in {"PUT", "POST"} else None
    failure = await files.failed(files.drop("file", _content(size)))
    assert (failure.code, failure.counts) == ("UPLOAD_FAILED", True)


async def test_a_bucket_that_is_not_there_is_said_so(files: Files, flaky: FlakyS3) -> None:
    flaky.faults = lambda method, _: "404" if method == "PUT" else None
    assert (await files.failed(files.drop("file", b"x"))).code == "STORAGE_NO_BUCKET"


@pytest.mark.parametrize("size", [100_000, _BIG])
async def test_a_canceled_attempt_leaves_nothing_behind(
    files: Files, flaky: FlakyS3, s3_client: Any, bucket: str, size: int
) -> None:
    asked = asyncio.Event()

    def hang(method: str, target: str) -> str | None:
        if method == "PUT":
            asked.set()
            return "slow"
        return None

    flaky.faults = hang
    path = files.drop("file", _content(size))
    attempt = asyncio.create_task(files.do(path))
    await asyncio.wait_for(asked.wait(), 30)
    flaky.faults = lambda method, target: None
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await files.objects.close()
    assert _nothing_left(s3_client, bucket)

    async def closed() -> bool:
        return str(path) not in open_descriptors()

    await eventually(closed, 60)


async def test_many_at_once(config: Config, tmp_path: Path) -> None:
    """More than there are threads, and more bytes than the budget would hold at once."""
    config.worker.count = 2
    config.object_store.part_size = config.object_store.multipart_threshold = _PART
    async with files_of(config, tmp_path) as files:
        paths = [files.drop(f"{i}", _content(size)) for i, size in enumerate([10, 70_000, _PART, _PART + 1, _BIG] * 2)]
        await asyncio.gather(*map(files.done, paths))
        for path in paths:
            assert (await files.stored(path.name))[0] == path.read_bytes()
