"""Each script's header says what its caller passes, and only what is in KEYS is touched."""

import re
from pathlib import Path

import pytest

from kernel.redis import scripts
from kernel.redis.clients import RedisClients
from kernel.redis.scripts import Script

FOLDER = Path(scripts.__file__).parent / "lua"


def _named(line: str) -> list[str]:
    return [part.strip() for part in line.split(",") if part.strip()]


def _header(script: Script) -> dict[str, str]:
    found = dict(re.findall(r"^-- (KEYS|ARGV|returns) ?(.*)$", script.source, re.MULTILINE))
    assert found, f"{script.name}.lua has no header"
    return found


def _most(source: str, table: str) -> int:
    code = "\n".join(line.partition("--")[0] for line in source.splitlines())
    return max((int(number) for number in re.findall(rf"{table}\[(\d+)\]", code)), default=0)


def test_every_file_is_declared() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == {script.name for script in scripts.ALL}


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
def test_header_names_what_the_caller_declares(script: Script) -> None:
    header = _header(script)
    arguments, _, each = header["ARGV"].partition("each:")
    assert _named(header["KEYS"]) == list(script.keys)
    assert _named(arguments) == list(script.args)
    assert _named(each) == list(script.each)
    assert header["returns"]
    assert re.search(rf"^-- {script.name}: \w", script.source, re.MULTILINE)


@pytest.mark.parametrize("script", scripts.ALL, ids=lambda script: script.name)
@pytest.mark.fault(48)
def test_body_uses_no_more_than_the_header_says(script: Script) -> None:
    assert script.source.startswith("#!lua")
    assert _most(script.source, "KEYS") <= len(script.keys)
    assert _most(script.source, "ARGV") <= len(script.args) + len(script.each)
    spelt = re.findall(r"redis\.call\('[A-Z]+', *'(?![A-Z]+')[^']*'", script.source)
    assert not spelt, f"{script.name}.lua spells a key: {spelt}"


@pytest.mark.fault(47)
def test_what_drains_may_run_when_memory_is_short() -> None:
    must_wait = {
        "submit_begin",
        "outbox",
        "accept",
        "publish",
        "publish_once",
        "queue_once",
        "task_admit",
        "file_enqueue",
        "flow_open",
        "flow_hit",
        "flow_deliver",
    }
    assert {script.name for script in scripts.ALL if "allow-oom" not in script.source} == must_wait


def test_time_comes_from_redis() -> None:
    for script in scripts.ALL:
        assert not {"now_ms", "now", "timestamp_ms"} & {*script.args, *script.each}, script.name


async def test_every_script_compiles(redis_server: str) -> None:
    from kernel.config.loading import defaults  # noqa: PLC0415  # one test of this file needs a server

    config = defaults()
    config.redis.addr = redis_server
    clients = await RedisClients.open(config.redis)
    for script in scripts.ALL:
        sha = await clients.commands.script_load(script.source)
        assert (sha.decode() if isinstance(sha, bytes) else sha) == script.sha
    await clients.close()
