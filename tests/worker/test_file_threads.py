"""Threads that may hang, files that somebody changes between two looks, and descriptors that nobody waits for."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from tests.worker.conftest import eventually
from tests.worker.file_rig import open_descriptors
from worker_svc.files.failure import FileFailure
from worker_svc.files.opening import CHUNK, OpenFile
from worker_svc.files.roots import FilePlace, Roots
from worker_svc.files.threads import Threads


async def test_a_call_that_hangs_holds_up_no_other() -> None:
    threads, hung = Threads(2, "test"), threading.Event()
    stuck = asyncio.create_task(threads.run(hung.wait))
    async with asyncio.timeout(20):
        assert [await threads.run(partial(abs, -n)) for n in range(50)] == [*range(50)]
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    async with asyncio.timeout(20):
        assert await threads.run(threading.active_count) > 0
    hung.set()
    threads.close()
    threads.close()


async def test_no_more_threads_than_are_allowed_and_none_left() -> None:
    threads, names = Threads(3, "counted"), set[str]()

    def note() -> None:
        names.add(threading.current_thread().name)

    await asyncio.gather(*(threads.run(note) for _ in range(200)))
    assert 1 <= len(names) <= 3
    threads.close()

    async def over() -> bool:
        return not any(thread.name.startswith("counted") for thread in threading.enumerate())

    await eventually(over, 60)


async def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    threads = Threads(1, "test")

    def fail() -> None:
        raise SystemExit("even this")

    with pytest.raises(SystemExit, match="even this"):
        await threads.run(fail)
    assert await threads.run(lambda: 1) == 1
    threads.close()


async def test_a_file_that_was_opened_for_nobody_is_closed(tmp_path: Path) -> None:
    place, may_open, opened = _place(tmp_path, "file"), threading.Event(), threading.Event()
    threads = Threads(1, "test")

    def opens() -> OpenFile:
        may_open.wait()
        file = OpenFile(place)
        opened.set()
        return file

    waiting = asyncio.create_task(threads.run(opens))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_open.set()
    await asyncio.to_thread(opened.wait)

    async def closed() -> bool:
        return place.path not in open_descriptors()

    await eventually(closed, 60)
    threads.close()


def _place(root: Path, name: str, body: bytes = b"inside") -> FilePlace:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    config = Config()
    config.worker.file_roots.append(str(root))
    return Roots(config).place(str(path))


def _folder_becomes_a_link(root: Path) -> None:
    shutil.rmtree(root / "a")
    (root / "a").symlink_to(root.parent / "outside")


def _file_becomes_a_link(root: Path) -> None:
    (root / "a/b/file").unlink()
    (root / "a/b/file").symlink_to(root.parent / "outside/b/file")


def _folder_becomes_a_file(root: Path) -> None:
    shutil.rmtree(root / "a/b")
    (root / "a/b").write_bytes(b"x")


@pytest.mark.parametrize("change", [_folder_becomes_a_link, _file_becomes_a_link, _folder_becomes_a_file])
def test_nobody_leads_out_between_the_look_and_the_opening(tmp_path: Path, change: Callable[[Path], None]) -> None:
    (tmp_path / "outside/b").mkdir(parents=True)
    (tmp_path / "outside/b/file").write_bytes(b"secret")
    root = tmp_path / "in"
    place = _place(root, "a/b/file")
    change(root)
    with pytest.raises(FileFailure) as failure:
        OpenFile(place)
    assert failure.value.code == "HANDLER_FILE_CHANGED"


def test_a_reader_ends_soon_once_nobody_wants_it(tmp_path: Path) -> None:
    place = _place(tmp_path, "file")
    os.truncate(place.path, 1 << 40)
    file = OpenFile(place)
    ended: list[FileFailure] = []

    def read() -> None:
        try:
            file.digest()
        except FileFailure as failure:
            ended.append(failure)

    reader = threading.Thread(target=read)
    reader.start()
    file.stop()
    file.close()
    reader.join(20)
    assert not reader.is_alive()
    assert ended
    with pytest.raises(FileFailure):
        file.read_at(0, 1)
    file.close()
    assert place.path not in open_descriptors()


def test_pieces_add_up(tmp_path: Path) -> None:
    body = os.urandom(2 * CHUNK + 17)
    file = OpenFile(_place(tmp_path, "file", body))
    assert file.whole() == body
    assert b"".join(file.read_at(at, min(CHUNK, file.size - at)) for at in range(0, file.size, CHUNK)) == body
    file.same_as_opened()
    file.close()
