"""Where a file may be read from, what kind of thing it may be, and what its object is called."""

import asyncio
import hashlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import ConfigError
from kernel.objects import ObjectStore
from tests.worker.file_rig import Files, as_nobody, files_of, open_descriptors
from worker_svc.files import FileRunner
from worker_svc.files.content_type import content_type


@pytest.fixture
async def files(config: Config, tmp_path: Path) -> AsyncIterator[Files]:
    root = tmp_path / "in"
    root.mkdir()
    async with files_of(config, root) as made:
        yield made


async def test_a_file_is_stored_with_its_digest_size_and_type(files: Files) -> None:
    body = b"a,b\n1,2\n"
    path = files.drop("2026/report.csv", body)
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    await files.done(path, job_id="the-job")
    stored, info = await files.stored("2026/report.csv")
    assert stored == body
    assert info.content_type == "text/csv"
    assert info.metadata == {
        "sha256": hashlib.sha256(body).hexdigest(),
        "size": "8",
        "modified": "2023-11-14T22:13:20.123456789Z",
        "path": str(path),
        "job-id": "the-job",
    }


async def test_an_empty_file_is_an_empty_object(files: Files) -> None:
    await files.done(files.drop("empty"))
    body, info = await files.stored("empty")
    assert (body, info.size, info.metadata["size"]) == (b"", 0, "0")


async def test_a_file_that_is_done_twice_is_there_once(files: Files) -> None:
    path = files.drop("twice.txt", b"same")
    await files.done(path)
    await files.done(path)
    assert await files.keys() == ["files/twice.txt"]


async def test_the_size_that_a_producer_saw_binds_nobody(files: Files) -> None:
    path = files.drop("grown.txt", b"more than the job says, whose filesize is 0")
    await files.done(path)
    assert (await files.stored("grown.txt"))[0] == path.read_bytes()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the address of a socket has only room for 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def _folder(path: Path) -> None:
    path.mkdir()


def _link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_out(path: Path) -> None:
    (path.parent.parent / "outside").write_bytes(b"secret")
    path.symlink_to("../outside")


def _absolute_link_out(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_fifo, "VALIDATION_FILE_KIND"),
        (_socket, "VALIDATION_FILE_KIND"),
        (_folder, "VALIDATION_FILE_KIND"),
        (_link_to_a_device, "VALIDATION_FILE_OUTSIDE"),
        (_link_out, "VALIDATION_FILE_OUTSIDE"),
        (_absolute_link_out, "VALIDATION_FILE_OUTSIDE"),
        (_link_to_nothing, "VALIDATION_FILE_MISSING"),
        (_loop, "VALIDATION_FILE_MISSING"),
        (lambda path: None, "VALIDATION_FILE_MISSING"),
    ],
)
async def test_what_is_no_file_of_ours_fails_at_once(files: Files, make: Callable[[Path], None], code: str) -> None:
    path = files.root / "thing"
    make(path)
    async with asyncio.timeout(20):
        failure = await files.failed(path)
    assert failure.code == code
    assert failure.counts
    assert str(path) not in failure.message
    assert await files.keys() == []


async def test_nobody_who_waits_at_a_pipe_is_woken(files: Files) -> None:
    os.mkfifo(files.root / "pipe")
    async with asyncio.timeout(20):
        assert (await files.failed(files.root / "pipe")).code == "VALIDATION_FILE_KIND"
    with pytest.raises(OSError, match="No such device"):  # nobody has it open for reading
        os.open(files.root / "pipe", os.O_WRONLY | os.O_NONBLOCK)


async def test_a_device_is_not_read(config: Config) -> None:
    async with files_of(config, "/dev") as files:
        async with asyncio.timeout(20):
            failure = await files.failed("/dev/zero")
    assert (failure.code, failure.message) == ("VALIDATION_FILE_KIND", "the path is a device")


async def test_links_may_lead_to_other_places_below_the_roots(files: Files) -> None:
    files.drop("real/file.txt", b"through a link")
    (files.root / "file").symlink_to("real/file.txt")
    (files.root / "folder").symlink_to(files.root / "real")
    await files.done(files.root / "file")
    await files.done(files.root / "folder/file.txt")
    assert await files.keys() == ["files/file", "files/folder/file.txt"]
    assert (await files.stored("folder/file.txt"))[0] == b"through a link"


async def test_a_link_in_the_middle_must_not_lead_out(files: Files, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    (files.root / "folder").symlink_to(tmp_path / "outside")
    assert (await files.failed(files.root / "folder/secret")).code == "VALIDATION_FILE_OUTSIDE"
    # One that leads out and in again is not followed either: what is stored lies below a root, which it does.
    files.drop("in.txt", b"in")
    (files.root / "around").symlink_to(tmp_path)
    await files.done(files.root / "around/in/in.txt")


@pytest.mark.parametrize(
    "path",
    [
        "{root}/../outside",
        "{root}/a/../../outside",
        "{root}/a/../a",
        "{root}x",
        "/etc/passwd",
        "relative/file",
        "",
        ".",
        "{root}-evil/file",
    ],
)
async def test_a_path_that_is_not_plainly_below_a_root_is_refused(files: Files, tmp_path: Path, path: str) -> None:
    files.drop("a", b"in")
    (tmp_path / "outside").write_bytes(b"out")
    (tmp_path / "inx").write_bytes(b"a neighbour whose name begins alike")
    assert (await files.failed(path.format(root=files.root))).code == "VALIDATION_FILE_OUTSIDE"
    assert await files.keys() == []


async def test_what_says_nothing_in_a_path_is_left_out(files: Files) -> None:
    files.drop("a/b", b"x")
    await files.done(f"/{files.root}/./a//b")
    assert await files.keys() == ["files/a/b"]


async def test_names_that_no_file_can_have(files: Files) -> None:
    assert (await files.failed(files.root / ("n" * 256))).code == "VALIDATION_FILE_MISSING"
    files.drop("file", b"x")
    assert (await files.failed(files.root / "file/below")).code == "VALIDATION_FILE_MISSING"


async def test_without_roots_no_file_is_read(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    async with files_of(config, "") as files:
        failure = await files.failed(tmp_path / "file")
    assert failure.code == "VALIDATION_FILE_OUTSIDE"
    assert "worker.file_roots" in failure.message


async def test_the_directory_of_the_producer_is_the_root_by_default(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    config.producer.scan_dir = str(tmp_path)
    objects = ObjectStore(config.object_store)
    files = Files(tmp_path, FileRunner(config, objects), objects, "files/")
    await files.done(tmp_path / "file")
    assert await files.keys() == ["files/file"]
    await files.runner.stop()
    await objects.close()


async def test_files_of_several_roots_do_not_shadow_each_other(config: Config, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with files_of(config, one, two) as files:
        for root in (one, two):
            root.mkdir()
            (root / "same.txt").write_bytes(root.name.encode())
            await files.done(root / "same.txt")
        (one / "link").symlink_to(two / "same.txt")
        await files.done(one / "link")
        assert (await files.stored(f"{one}/same.txt".lstrip("/")))[0] == b"one"
        assert (await files.stored(f"{two}/same.txt".lstrip("/")))[0] == b"two"
        assert (await files.stored(f"{one}/link".lstrip("/")))[0] == b"two"


async def test_a_root_may_be_a_link(config: Config, tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v2").mkdir()
    (tmp_path / "v1/file").write_bytes(b"one")
    (tmp_path / "v2/file").write_bytes(b"two")
    root = tmp_path / "current"
    root.symlink_to("v1")
    async with files_of(config, root) as files:
        await files.done(root / "file")
        assert (await files.stored("file"))[0] == b"one"
        await files.done(tmp_path / "v1/file")  # by the name that it really has
        root.unlink()
        root.symlink_to("v2")
        await files.done(root / "file")
        assert (await files.stored("file"))[0] == b"two"
        assert await files.keys() == ["files/file"]
        assert (await files.failed(tmp_path / "v1/file")).code == "VALIDATION_FILE_OUTSIDE"


async def test_a_root_that_is_not_mounted_is_waited_for(config: Config, tmp_path: Path) -> None:
    async with files_of(config, tmp_path / "away") as files:
        failure = await files.failed(tmp_path / "away/file")
        assert (failure.code, failure.counts, failure.retry_after) == ("SYSTEM_FILE_READ", False, 10.0)
        files.drop("file", b"x")
        await files.done(tmp_path / "away/file")


async def test_a_disk_that_cannot_be_read(config: Config) -> None:
    # Nothing is mapped at the address 0 of this process, so that reading its memory there is an I/O error.
    async with files_of(config, "/proc/self") as files:
        failure = await files.failed("/proc/self/mem")
    assert (failure.code, failure.counts) == ("SYSTEM_FILE_READ", True)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that others may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield root


async def test_a_file_that_may_not_be_read(config: Config, public: Path) -> None:
    async with files_of(config, public) as files:
        files.drop("open.txt", b"for all").chmod(0o644)
        files.drop("closed.txt", b"for nobody").chmod(0)
        files.drop("closed/file", b"for nobody").chmod(0o644)
        (public / "search").mkdir()
        files.drop("search/file", b"by who knows its name").chmod(0o644)
        (public / "closed").chmod(0)
        (public / "search").chmod(0o711 if os.geteuid() == 0 else 0o311)
        with as_nobody():
            await files.done(public / "open.txt")
            await files.done(public / "search/file")
            for name in ("closed.txt", "closed/file"):
                failure = await files.failed(public / name)
                assert failure.code == "AUTH_FILE_UNREADABLE"
        (public / "closed").chmod(0o755)


async def test_failures_leave_nothing_open(files: Files, tmp_path: Path) -> None:
    os.mkfifo(files.root / "pipe")
    large = files.drop("large", bytes(100_000))
    before = open_descriptors()
    for _ in range(3):
        for path in (files.root, files.root / "pipe", files.root / "none", "/etc/passwd"):
            await files.failed(path)
        await files.done(large)
    await files.done(files.drop("last", b"the threads have closed what came before"))
    assert open_descriptors() <= before


@pytest.mark.parametrize("prefix", ["/files/", "a//b/", "a/../b/", "a\\b/", "a\n"])
async def test_a_prefix_that_makes_no_object_key_ends_the_start(config: Config, prefix: str) -> None:
    config.worker.file_key_prefix = prefix
    objects = ObjectStore(config.object_store)
    with pytest.raises(ConfigError, match="file_key_prefix"):
        FileRunner(config, objects)
    await objects.close()


async def test_a_prefix_of_ones_own(config: Config, tmp_path: Path) -> None:
    config.worker.file_key_prefix = "incoming/today-"
    (tmp_path / "x").write_bytes(b"1")
    async with files_of(config, tmp_path) as files:
        await files.done(tmp_path / "x")
        assert (await files.objects.get(files.objects.bucket, "incoming/today-x")) == b"1"


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("a.csv", b"", "text/csv"),
        ("A.JPEG", b"", "image/jpeg"),
        ("a.json", b"\x89PNG\r\n\x1a\n", "application/json"),
        ("a.csv.gz", b"\x1f\x8b\x08", "application/gzip"),
        ("a.tar.xz", b"", "application/x-xz"),
        ("a.parquet", b"PAR1", "application/vnd.apache.parquet"),
        ("a.xlsx", b"PK\3\4", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("no-extension", b"%PDF-1.7", "application/pdf"),
        ("a.unknown", b"\x89PNG\r\n\x1a\n", "image/png"),
        (".png", b"", "application/octet-stream"),
        ("a.", b"", "application/octet-stream"),
        ("a", b"plain words", "application/octet-stream"),
    ],
)
def test_types_by_name_and_else_by_the_first_bytes(name: str, head: bytes, kind: str) -> None:
    assert content_type(name, head) == kind
