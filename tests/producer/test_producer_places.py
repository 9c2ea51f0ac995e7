"""Directories and names that nobody wishes for: reported, survived, and nothing is forgotten."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from producer_rig import boxed, files, old, settings, until, value, write

from kernel.config.loading import ConfigError, defaults
from kernel.service.resources import Resources
from kernel.telemetry.log_format import JsonFormatter
from producer_svc import bootstrap
from producer_svc.found import Found
from producer_svc.reports import Reports, shown
from producer_svc.rules import Rules
from producer_svc.walk import Walk

NOBODY = 65534


def _told(caplog: pytest.LogCaptureFixture, reason: str) -> list[str]:
    """The paths that the log tells of with this reason, from lines that can be written."""
    lines = [JsonFormatter("producer").format(record) for record in caplog.records]
    found = [json.loads(line) for line in lines]
    return [line["path"] for line in found if line.get("reason") == reason]


@pytest.mark.req("R002-config.26")
async def test_the_role_needs_a_directory(resources: Resources) -> None:
    with pytest.raises(ConfigError, match=r"producer\.scan_dir: is required"):
        await bootstrap.build(defaults(), resources)


@pytest.mark.parametrize("trouble", ["missing", "file", "link to nowhere"])
async def test_a_directory_that_is_away_comes_back_and_nothing_is_forgotten(
    redis_server: str, tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    inside, away = tmp_path / "in", tmp_path / "away"
    write(inside / "a")
    async with boxed(settings(redis_server, inside)) as box, box.producing():
        await box.enqueued("a")
        with caplog.at_level(logging.WARNING):
            inside.rename(away)
            if trouble == "file":
                inside.write_text("a file")
            elif trouble == "link to nowhere":
                inside.symlink_to(tmp_path / "nowhere")
            failed = value("fetchbox_producer_scans_total", outcome="failed")
            await until(lambda: _failed(failed + 2), lambda: "it is not told")
        assert "scan_failed" in caplog.text
        if trouble != "missing":
            inside.unlink()
        away.rename(inside)
        write(inside / "b")
        await box.enqueued("a", "b")


async def _failed(times: float) -> bool:
    return value("fetchbox_producer_scans_total", outcome="failed") >= times


async def test_an_empty_directory_in_place_of_a_mount_forgets_nothing(redis_server: str, tmp_path: Path) -> None:
    inside, away = tmp_path / "in", tmp_path / "away"
    write(inside / "a")
    async with boxed(settings(redis_server, inside)) as box, box.producing():
        await box.enqueued("a")
        inside.rename(away)
        inside.mkdir()
        await box.scanned(3)
        inside.rmdir()
        away.rename(inside)
        await box.scanned(3)
        assert await box.paths() == ["a"]


async def test_a_directory_may_be_missing_at_the_start(redis_server: str, tmp_path: Path) -> None:
    inside = tmp_path / "later"
    async with boxed(settings(redis_server, inside)) as box, box.producing():
        await until(lambda: _failed(1))
        write(inside / "a")
        await box.enqueued("a")


async def test_names_that_are_no_utf8_are_told_of_and_left(
    redis_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "good")
    write(tmp_path / os.fsdecode(b"caf\xe9.txt"))
    write(tmp_path / os.fsdecode(b"d\xff") / "below")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        with caplog.at_level(logging.WARNING):
            await box.enqueued("good")
            await box.scanned(3)
    assert sorted(_told(caplog, "not_utf8")) == [f"{tmp_path}/caf\\xe9.txt", f"{tmp_path}/d\\xff"], "each once"


async def test_odd_names_are_names(redis_server: str, tmp_path: Path) -> None:
    names = ["new\nline", "quote\"'", "ünïcode", "tab\tand \\", " ", "-rf", "%s%00", "\x7f\x01", "*", "[a]", "🦊"]
    for name in names:
        write(tmp_path / name)
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued(*names)


@given(st.binary(min_size=1, max_size=40))
def test_any_path_can_be_shown(raw: bytes) -> None:
    text = shown(os.fsdecode(raw))
    assert text.isprintable()
    text.encode()


async def test_a_path_as_long_as_the_system_allows_is_taken_and_a_longer_one_told_of(
    redis_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deepest = _down(tmp_path, 4095 - 2)
    name = "n" * (4095 - len(str(deepest)) - 1)
    path = write(deepest / name)
    assert len(str(path)) == 4095
    here = os.open(deepest, os.O_RDONLY)
    try:
        os.close(os.open("m" * 255, os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        with caplog.at_level(logging.WARNING):
            await box.enqueued(str(path.relative_to(tmp_path)))
            await box.scanned(2)
    assert len(_told(caplog, "too_long")) == 1


def _down(folder: Path, length: int) -> Path:
    """A directory some way below, whose path has about so many characters."""
    while len(str(folder)) + 201 < length:
        folder /= "d" * 200
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def test_a_deep_tree_is_walked_to_its_bottom(redis_server: str, tmp_path: Path) -> None:
    bottom = tmp_path.joinpath(*["d"] * 900)
    names = [Path(*["d"] * depth, "f") for depth in (0, 31, 32, 33, 34, 899, 900)]
    bottom.mkdir(parents=True)
    for name in names:
        write(tmp_path / name)
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued(*map(str, names))


def _walked(root: Path, most: int = 100) -> tuple[list[Found], Walk]:
    walk = Walk(str(root), Rules(defaults()), Reports())
    found: list[Found] = []
    while not walk.done:
        found += walk.chunk(most)
    return found, walk


@given(st.sets(st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(tuple), max_size=12))
def test_a_walk_finds_what_is_there(paths: set[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = set()
        for parts in paths:
            if not any(root.joinpath(*parts[:number]).is_file() for number in range(1, len(parts))):
                target = root.joinpath(*parts)
                if not target.exists():
                    made.add(str(write(target)))
        found, walk = _walked(root, most=2)
        assert sorted(file.path for file in found) == sorted(made)
        assert walk.complete


def test_a_wide_directory_is_not_held_in_memory(tmp_path: Path) -> None:
    for number in range(20_000):
        (tmp_path / f"{number}").touch()
    walk = Walk(str(tmp_path), Rules(defaults()), Reports())
    tracemalloc.start()
    try:
        count = 0
        while not walk.done:
            count += len(walk.chunk(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 1 << 20


def test_few_directories_are_open_at_a_time(tmp_path: Path) -> None:
    bottom = tmp_path.joinpath(*["d"] * 300)
    bottom.mkdir(parents=True)
    write(bottom / "f")
    walk = Walk(str(tmp_path), Rules(defaults()), Reports())
    before = len(list(Path("/proc/self/fd").iterdir()))
    while not walk.done:
        for file in walk.chunk(1):
            assert file.name == "f"
            assert len(list(Path("/proc/self/fd").iterdir())) < before + 50


def test_a_walk_can_be_closed_at_any_point(tmp_path: Path) -> None:
    for number in range(10):
        write(tmp_path / f"{number}/a")
    walk = Walk(str(tmp_path), Rules(defaults()), Reports())
    walk.chunk(3)
    walk.close()
    walk.close()
    assert walk.chunk(3) == []


async def test_links_are_not_followed(redis_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither loops, nor out of the directory; a link to what is inside is that file by another name."""
    inside = tmp_path / "in"
    write(inside / "a"), write(tmp_path / "outside")
    for name, target in (("out", "../outside"), ("up", ".."), ("loop", "loop"), ("nowhere", "x"), ("same", "a")):
        (inside / name).symlink_to(target)
    (inside / "self").symlink_to(".")
    async with boxed(settings(redis_server, inside)) as box, box.producing():
        with caplog.at_level(logging.WARNING):
            await box.enqueued("a")
            await box.scanned(3)
        assert await box.paths() == ["a"]
    assert sorted(_told(caplog, "link")) == [str(inside / name) for name in ("loop", "nowhere", "out", "up")]


async def test_hard_links_are_files_of_their_own(redis_server: str, tmp_path: Path) -> None:
    write(tmp_path / "a")
    os.link(tmp_path / "a", tmp_path / "b")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        await box.enqueued("a", "b")


async def test_what_is_no_file_is_told_of(
    redis_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
            with caplog.at_level(logging.WARNING):
                await box.enqueued("a")
                await box.scanned(3)
    assert sorted(_told(caplog, "special")) == [str(tmp_path / "pipe"), str(tmp_path / "socket")]


async def test_many_problems_do_not_flood_the_log(
    redis_server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        (tmp_path / f"{number}").symlink_to("/nowhere")
    before = files("link")
    async with boxed(settings(redis_server, tmp_path)) as box, box.producing():
        with caplog.at_level(logging.WARNING):
            await box.scanned(2)
    assert len(_told(caplog, "link")) == 100
    assert "files_left_alone" in caplog.text
    assert files("link") - before >= 600


_AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from producer_rig import boxed, files, settings, until
async def told(outcome): return files(outcome) >= 1
async def main():
    folder = Path(sys.argv[2])
    async with boxed(settings(sys.argv[1], folder)) as box:
        if os.geteuid() == 0:
            os.setgid({nobody}), os.setuid({nobody})
        async with box.producing():
            await box.enqueued("good")
            await until(lambda: told("unreadable"))
            await until(lambda: told("unreadable_directory"))
            print("told", flush=True)
            sys.stdin.readline()
            await box.enqueued("bad", "closed/c", "good")
            await box.scanned(2)
asyncio.run(main())
"""


def _for_all(folder: Path) -> Path:
    """A directory that everybody may enter, with a file and a directory that nobody may."""
    folder.chmod(0o755)
    write(folder / "good"), old(write(folder / "bad")).chmod(0)
    write(folder / "closed/c")
    (folder / "closed").chmod(0)
    return folder


async def test_what_cannot_be_read_is_told_of_and_taken_once_it_can(redis_server: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = _for_all(Path(name))
        code = _AS_NOBODY.format(nobody=NOBODY)
        command = [sys.executable, "-c", code, redis_server, name, str(Path(__file__).parent)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220  # it is the test's other half
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "told\n"
            if os.geteuid() != 0:
                (folder / "bad").chmod(0o600), (folder / "closed").chmod(0o700)
            else:
                (folder / "bad").chmod(0o644), (folder / "closed").chmod(0o755)
            process.communicate("go\n", timeout=60)
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()
