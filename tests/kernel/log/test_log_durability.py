"""What survives: killed writers, torn lines, a killed Redis, rings that are full, and who may write."""

import asyncio
import contextlib
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.embedded.valkey import Valkey
from kernel.config.loading import defaults
from kernel.errors import FetchboxError
from kernel.log.file import FileLog, folder_name
from kernel.log.memory import MemoryLog
from kernel.log.offsets import START, parse_id
from kernel.log.redis import RedisLog
from kernel.log.store import Entry
from kernel.redis.clients import RedisClients

_END = 1_000_000
_WRITER = "tests.kernel.log.log_writer"


def _numbers(entries: list[Entry]) -> list[int]:
    return [int(entry.fields["n"]) for entry in entries]


def _files(root: Path, pattern: str) -> list[Path]:
    return sorted((root / folder_name("s")).glob(pattern))


async def _killed_writer(root: Path, start: int, lines: int) -> int:
    """Runs a writer until it has told of some batches, kills it, and returns how many numbers it told of."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _WRITER, str(root), str(start), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(lines):
        told = await process.stdout.readline()
    process.kill()
    rest = await process.stdout.read()
    await process.wait()
    whole = [line for line in (told + rest).splitlines(keepends=True) if line.endswith(b"\n")]
    return int(whole[-1].split()[0]) + 3


async def test_a_killed_writer_loses_nothing_it_told_of(tmp_path: Path) -> None:
    told = 0
    for round_number in range(3):
        told = await _killed_writer(tmp_path, told, 40 * (round_number + 1))
        log = FileLog(tmp_path)
        found = _numbers(await log.read("s", limit=100_000))
        assert found[:told] == list(range(told))
        # What was written but not told of is a whole batch.
        assert (len(found) - told) % 3 == 0
        assert found == list(range(len(found)))
        await log.append("s", {"n": str(len(found)).encode()})
        await log.close()
        told = len(found) + 1
    assert len(_files(tmp_path, "*.jsonl.gz")) > 0


@pytest.mark.parametrize(
    "torn", [b"", b"{", b'{"id":"9999999999999-0","fields":{"n":"7"}', b"\x00" * 100, b'{"id":1}\n']
)
async def test_a_torn_end_is_cut_off_at_open(tmp_path: Path, torn: bytes) -> None:
    log = FileLog(tmp_path)
    for n in range(5):
        await log.append("s", {"n": str(n).encode()})
    last = await log.last("s")
    await log.close()
    [path] = _files(tmp_path, "*.jsonl")
    with path.open("ab") as file:
        file.write(torn)
    log = FileLog(tmp_path)
    assert _numbers(await log.read("s")) == [0, 1, 2, 3, 4]
    assert await log.last("s") == last
    await log.append("s", {"n": b"5"})
    assert _numbers(await log.read("s")) == [0, 1, 2, 3, 4, 5]
    assert await log.length("s") == 6
    await log.close()


async def test_a_line_cut_anywhere_takes_its_whole_batch_with_it(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    await log.append("s", {"n": b"0"})
    await log.append_many("s", [{"n": b"1"}, {"n": b"2"}, {"n": b"3"}])
    await log.close()
    [path] = _files(tmp_path, "*.jsonl")
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for cut in range(first, len(data)):
        path.write_bytes(data[:cut])
        log = FileLog(tmp_path)
        assert _numbers(await log.read("s")) == [0], cut
        await log.append("s", {"n": b"9"})
        assert _numbers(await log.read("s")) == [0, 9], cut
        await log.close()
        path.write_bytes(data)


async def test_damage_in_the_middle_is_told_and_not_cut_off(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    for n in range(10):
        await log.append("s", {"n": str(n).encode()})
    await log.close()
    [path] = _files(tmp_path, "*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b"x" * 10 + b"\n"
    path.write_bytes(b"".join(lines))
    log = FileLog(tmp_path)
    with pytest.raises(OSError, match="is damaged at byte"):
        await log.append("s", {"n": b"10"})
    assert path.read_bytes() == b"".join(lines)
    await log.close()


async def test_an_interrupted_sealing_leaves_one_whole_file(tmp_path: Path) -> None:
    log = FileLog(tmp_path, rotate_bytes=300)
    for n in range(30):
        await log.append("s", {"n": str(n).encode()})
    await log.close()
    sealed = _files(tmp_path, "*.jsonl.gz")[-1]
    # A crash between the rename and the removal: both forms are there; one before the rename leaves a draft.
    sealed.with_name(f"{sealed.name.split('_')[0]}.jsonl").write_bytes(gzip.decompress(sealed.read_bytes()))
    sealed.with_name("1-0_2-0_3.jsonl.draft").write_bytes(b"half")
    log = FileLog(tmp_path, rotate_bytes=300)
    assert _numbers(await log.read("s", limit=1000)) == list(range(30))
    await log.append("s", {"n": b"30"})
    assert _numbers(await log.read("s", limit=1000)) == list(range(31))
    assert await log.length("s") == 31
    assert not _files(tmp_path, "*.draft")
    await log.close()


async def test_lines_are_json_that_people_can_read(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    entry = await log.append("nq:flow:6d1a…", {"record": b'{"kind":"flow.start"}', "raw": b"\xff"})
    await log.close()
    [path] = (tmp_path / folder_name("nq:flow:6d1a…")).glob("*.jsonl")
    assert json.loads(path.read_text()) == {
        "id": entry,
        "fields": {"record": '{"kind":"flow.start"}', "raw": {"base64": "/w=="}},
    }


async def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    writer, reader = FileLog(tmp_path, rotate_bytes=500), FileLog(tmp_path)
    await writer.append("s", {"n": b"0"})
    assert _numbers(await reader.read("s")) == [0]
    with pytest.raises(FetchboxError, match="another process writes"):
        await reader.append("s", {"n": b"1"})
    seen: list[int] = []
    async with contextlib.aclosing(reader.subscribe("s")) as batches:
        async for batch in batches:
            seen += _numbers(batch)
            if len(seen) == 40:
                break
            await writer.append("s", {"n": str(len(seen)).encode()})
    assert seen == list(range(40))
    assert await reader.length("s") == 40
    await writer.trim_length("s", 7)
    assert (await reader.length("s"), _numbers(await reader.read("s"))) == (7, list(range(33, 40)))
    await writer.close()
    await reader.append("s", {"n": b"40"})
    assert await reader.length("s") == 8
    await reader.close()


async def test_trimming_outlives_a_restart_and_ids_go_on(tmp_path: Path) -> None:
    log = FileLog(tmp_path, rotate_bytes=200)
    ids = [await log.append("s", {"n": str(n).encode()}) for n in range(20)]
    await log.trim("s", ids[13])
    await log.close()
    log = FileLog(tmp_path)
    assert _numbers(await log.read("s")) == list(range(13, 20))
    await log.trim_length("s", 0)
    await log.close()
    log = FileLog(tmp_path)
    assert (await log.length("s"), await log.last("s"), await log.first("s")) == (0, ids[-1], None)
    assert parse_id(await log.append("s", {"n": b"20"})) > parse_id(ids[-1])
    assert _numbers(await log.read("s")) == [20]
    await log.close()


async def test_a_full_ring_drops_its_oldest(tmp_path: Path) -> None:
    log = MemoryLog(capacity=10)
    for n in range(57):
        await log.append("s", {"n": str(n).encode()})
        assert await log.length("s") == min(n + 1, 10)
    assert _numbers(await log.read("s")) == list(range(47, 57))
    assert _numbers(await log.read_last("s", 3)) == [54, 55, 56]
    assert await log.trim_length("s", 4) == 6
    assert _numbers(await log.read("s")) == [53, 54, 55, 56]
    await log.append("s", {"n": b"57"})
    assert await log.length("s") == 5


class _Traffic:
    """One writer and one subscriber across an outage."""

    def __init__(self, log: RedisLog, server: Valkey) -> None:
        self.told: list[int] = []
        self.seen: list[int] = []
        self.outages = 0
        self._log = log
        self._server = server
        self._after = START

    async def _tell(self, n: int) -> None:
        try:
            await self._log.append("s", {"n": str(n).encode()})
            self.told.append(n)
        except FetchboxError:
            await asyncio.sleep(0.05)

    async def write(self) -> None:
        for n in range(1, 200):
            await self._tell(n)
            if n == 60:
                await asyncio.to_thread(self._server.kill9)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(self._server.start)
        while self.told[-1] != _END:
            await self._tell(_END)

    async def read(self) -> None:
        while not self.seen or self.seen[-1] != _END:
            try:
                await self._read_on()
            except FetchboxError:
                self.outages += 1
                await asyncio.sleep(0.05)

    async def _read_on(self) -> None:
        async with contextlib.aclosing(self._log.subscribe("s", self._after)) as batches:
            async for batch in batches:
                self._after = batch[-1].id
                self.seen += _numbers(batch)
                if self.seen[-1] == _END:
                    return


async def test_a_killed_redis_keeps_what_it_told_of_and_a_subscriber_goes_on(tmp_path: Path) -> None:
    server = Valkey(tmp_path / "valkey")
    server.start()
    config = defaults()
    config.redis.addr = server.addr
    clients = await RedisClients.open(config.redis)
    log = RedisLog(clients)
    traffic = _Traffic(log, server)
    try:
        await asyncio.wait_for(asyncio.gather(traffic.write(), traffic.read()), 60)
        assert len(traffic.told) >= 100
        assert set(traffic.told) <= set(traffic.seen)
        assert traffic.seen == sorted(set(traffic.seen))
        assert traffic.outages >= 1
        assert _numbers(await log.read("s", limit=10_000)) == traffic.seen
    finally:
        await log.close()
        await clients.close()
        server.stop()
