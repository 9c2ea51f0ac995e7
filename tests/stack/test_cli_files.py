"""File jobs and circuit breakers on the command line, with a whole platform."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha1

import pytest
import redis

from cli.local import LocalPlatform
from kernel.breakers import Breakers
from kernel.clock import SystemClock
from kernel.config.loading import defaults
from kernel.queue.files.names import ListNames
from kernel.queue.work.file_job import FileJob, with_members
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.stack.conftest import CommandLine

NAMES = ListNames(defaults().worker)
ALL = (NAMES.dead_letters, *NAMES.queues, keys.FILE_DELAYED)


def digest(entry: bytes) -> str:
    return sha1(entry).hexdigest()


def letter(number: int, code: str = "STORAGE_UNAVAILABLE", **members: object) -> bytes:
    """A dead letter whose file lies where no worker may read."""
    job = FileJob(f"f{number}", f"/nowhere/{number}.csv", 7, "low", origin_queue=NAMES.default).encode()
    failure = {"code": code, "message": f"Authorization: Bearer s3cr3t-{number}"}
    return with_members(job, **{"retries": 3, "failure": failure, "failed_at": "2023-11-14T22:13:20Z", **members})


@pytest.fixture
def lists(platform: LocalPlatform) -> Iterator[redis.Redis]:
    """The platform's Redis, with no file job in it."""
    host, _, port = platform.environ["REDIS_ADDR"].rpartition(":")
    with redis.Redis(host, int(port)) as client:
        client.delete(*ALL)
        yield client
        client.delete(*ALL)


@pytest.fixture
def store(connected: CommandLine, lists: redis.Redis) -> Iterator[redis.Redis]:
    """The same, while the worker claims nothing: what is put back stays on its queue."""
    assert connected.run("worker", "pause").returncode == 0
    yield lists
    lists.delete(*ALL)
    assert connected.run("worker", "resume").returncode == 0


@pytest.fixture
def opened(platform: LocalPlatform) -> str:
    """A breaker that a worker has opened."""
    name = "host:opened.example"
    config = defaults()
    config.redis.addr = platform.environ["REDIS_ADDR"]

    async def fail() -> None:
        clients = await RedisClients.open(config.redis)
        breakers = Breakers(clients, config.circuit_breaker, SystemClock())
        for _ in range(40):
            breakers.record(name, ok=False)
        await breakers.stop()
        await clients.close()

    asyncio.run(fail())
    return name


def rows(text: str) -> list[dict[str, str]]:
    """A tab-separated table."""
    header, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def until(true: Callable[[], bool]) -> None:
    """Waits; a paused worker gives back what it was just being handed."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def letters(line: CommandLine, *options: str) -> list[dict[str, str]]:
    """What `files dlq` shows."""
    run = line.run("files", "dlq", *options)
    assert run.returncode == 0, run
    return rows(run.stdout)


def test_queues_are_shown_with_what_is_around_them(connected: CommandLine, store: redis.Redis) -> None:
    store.lpush(NAMES.dead_letters, letter(1), letter(2))
    run = connected.run("files", "queues")
    assert run.returncode == 0, run
    table = [line.split("\t") for line in run.stdout.splitlines()]
    assert table[0] == ["priority", "queue", "length", "oldest", "breaker"]
    assert [line[:2] for line in table[1:3]] == [["high", "jobqueue:high_priority"], ["low", "jobqueue:low_priority"]]
    assert ["dead letters", "2"] in table
    answer = json.loads(connected.run("files", "queues", "--json").stdout)
    assert [queue["breaker"] for queue in answer["queues"]] == ["closed", "closed"]
    assert answer["dead_letters"] == "2"


def test_dead_file_jobs_are_listed_page_by_page_without_secrets(connected: CommandLine, store: redis.Redis) -> None:
    entries = [letter(number) for number in range(1, 4)]
    store.lpush(NAMES.dead_letters, *entries)
    run = connected.run("files", "dlq", "--limit", "2")
    first, second = rows(run.stdout)
    assert (first["digest"], first["file"], first["code"]) == (
        digest(entries[2]),
        "/nowhere/3.csv",
        "STORAGE_UNAVAILABLE",
    )
    assert (first["failed at"], first["retries"]) == ("2023-11-14 22:13:20Z", "3")
    assert "s3cr3t" not in run.stdout
    token = run.stderr.split("--page ")[1].strip()
    (third,) = letters(connected, "--limit", "2", "--page", token)
    assert [one["job"] for one in (first, second, third)] == ["f3", "f2", "f1"]
    assert letters(connected, "--code", "HANDLER_DEADLINE") == []
    answer = json.loads(connected.run("files", "dlq", "--json").stdout)
    assert [one["job_id"] for one in answer["dead_letters"]] == ["f3", "f2", "f1"]
    assert answer["dead_letters"][0]["failed_at"] == "2023-11-14T22:13:20Z"


def test_in_a_terminal_there_are_tables_and_colours(connected: CommandLine, store: redis.Redis) -> None:
    store.lpush(NAMES.dead_letters, letter(1))
    assert "\x1b[32mclosed" in connected.in_terminal("files", "queues")
    assert "\x1b[1m" in connected.in_terminal("files", "dlq")


def test_named_jobs_are_replayed_and_the_exit_code_tells(connected: CommandLine, store: redis.Redis) -> None:
    one, worn = letter(1), letter(2, replays=3)
    store.lpush(NAMES.dead_letters, one, worn, b"no job")
    run = connected.run("files", "replay", digest(one), "--json")
    assert (run.returncode, json.loads(run.stdout)) == (
        0,
        {"outcomes": [{"digest": digest(one), "outcome": "replayed", "replay": 1}]},
    )
    run = connected.run("files", "replay", digest(worn), digest(b"no job"), digest(one))
    assert run.returncode == 1
    assert [row["outcome"] for row in rows(run.stdout)] == ["too_many_replays", "undecodable", "not_found"]
    run = connected.run("files", "replay", digest(worn), "--force")
    assert (run.returncode, rows(run.stdout)[0]["replay"]) == (0, "4")
    assert [row["digest"] for row in letters(connected)] == [digest(b"no job")]
    until(lambda: {json.loads(job)["replays"] for job in store.lrange(NAMES.default, 0, -1)} == {4, 1})


def test_a_replayed_job_is_tried_again_and_has_its_history(connected: CommandLine, lists: redis.Redis) -> None:
    """Its file still lies where no worker may read."""
    entry = letter(1)
    lists.lpush(NAMES.dead_letters, entry)
    assert connected.run("files", "replay", digest(entry)).returncode == 0
    until(lambda: lists.llen(NAMES.dead_letters) == 1)
    found = letters(connected)
    assert (found[0]["job"], found[0]["replays"], found[0]["code"]) == ("f1", "1", "VALIDATION_FILE_OUTSIDE")
    assert json.loads(lists.lindex(NAMES.dead_letters, 0))["last_failure"]["code"] == "STORAGE_UNAVAILABLE"


def test_all_are_replayed_however_many_and_counted(connected: CommandLine, store: redis.Redis) -> None:
    store.lpush(NAMES.dead_letters, *(letter(number, "HANDLER_DEADLINE") for number in range(1203)))
    store.lpush(NAMES.dead_letters, b"no job", letter(9001), letter(9002, replays=3))
    run = connected.run("files", "replay", "--code", "HANDLER_DEADLINE")
    assert (run.returncode, run.stdout) == (0, "replayed\t1203\n"), run
    assert connected.run("files", "replay", "--code", "HANDLER_DEADLINE").stderr.startswith(
        "there is no such dead letter"
    )
    run = connected.run("files", "replay", "--all", "--json")
    assert (run.returncode, json.loads(run.stdout)) == (1, {"replayed": 1, "undecodable": 1, "too_many_replays": 1})
    until(lambda: store.llen(NAMES.default) == 1204)


def test_purging_takes_what_is_named_or_all(connected: CommandLine, store: redis.Redis) -> None:
    entries = [letter(number) for number in range(1203)]
    store.lpush(NAMES.dead_letters, *entries)
    assert connected.run("files", "purge", digest(entries[7]), "f" * 40, "-y").stdout == "purged\t1\n"
    assert store.llen(NAMES.dead_letters) == 1202
    run = connected.run("files", "purge", "--all", "--yes", "--json")
    assert (run.returncode, json.loads(run.stdout)) == (0, {"purged": 1202})
    assert letters(connected) == []
    assert connected.run("files", "purge", digest(entries[7]), "-y").stderr.startswith("there is no such dead letter")


def test_a_digest_that_is_none_is_refused(connected: CommandLine) -> None:
    for call in (("replay", "nonsense"), ("purge", "f" * 39), ("purge", "f" * 40, "nonsense", "--yes")):
        run = connected.run("files", *call)
        assert run.returncode == 2
        assert "is no digest" in run.stderr
        assert "`fetchbox files dlq`" in run.stderr


def test_breakers_are_listed_and_closed_by_hand(connected: CommandLine, opened: str) -> None:
    run = connected.run("breakers", "list")
    assert run.returncode == 0, run
    (row,) = [row for row in rows(run.stdout) if row["breaker"] == opened]
    assert (row["state"], row["failures"]) == ("open", "40")
    assert row["retry after"].endswith(" s")
    assert "\x1b[31mopen" in connected.in_terminal("breakers", "list")
    run = connected.run("breakers", "reset", opened, "example.org")
    assert (run.returncode, run.stdout) == (2, "")
    assert "names begin with host:" in run.stderr
    run = connected.run("breakers", "reset", opened, "task:nobody")
    assert run.returncode == 1, run
    closed = {row["breaker"] for row in rows(run.stdout) if row["state"] == "closed"}
    assert closed == {opened}
    assert "nothing is known of task:nobody" in run.stderr
    assert opened not in run.stderr
    answer = json.loads(connected.run("breakers", "list", "--json").stdout)
    assert opened not in [breaker["name"] for breaker in answer["breakers"]]
    again = connected.run("breakers", "reset", opened, "--json")
    assert (again.returncode, json.loads(again.stdout)) == (1, {"breakers": []})
