"""Jobs written by a gateway that knows seed 004 and nothing of FetchBox, and other workers of its group."""

import json
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.ids import uuid7
from kernel.ledger import JobRecord
from kernel.ledger.base import begin_keys, record_keys
from kernel.redis import scripts
from kernel.redis.scripts import Script
from kernel.service.resources import Resources
from tests.worker.conftest import Start, eventually
from tests.worker.task_rig import Tasks, handled


@pytest.mark.req(
    "R004-queue.01",
    "R004-queue.03",
    "R004-worker.01",
    "R004-worker.05",
    "R004-worker.06",
    "R004-worker.07",
    "R004-worker.11",
    "R004-worker.15",
)
async def test_a_foreign_job_is_running_for_all_to_see_before_its_work(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.foreign(json.dumps({"do": [["token", "x"], ["sleep", 3600]]}))
    await tasks.told(job_id, "token")
    record = await tasks.record(job_id)
    assert record["status"] == "running"
    assert int(record["updated_ts"]) >= int(record["created_ts"])
    assert await tasks.kinds(job_id) == ["queued", "running", "token"]
    pending = await tasks.redis.execute_command("XPENDING", "jobs:stream", "workers")
    assert pending["pending"] == 1, "it is not acknowledged while it runs"
    for name in (f"job:{job_id}", f"job:{job_id}:events"):
        assert await tasks.redis.ttl(name) == -1, "nothing expires under a running job"
    await tasks.ledger.cancel(job_id, "test")


@pytest.mark.req(
    "R004-worker.02",
    "R004-worker.03",
    "R004-worker.04",
    "R004-worker.08",
    "R004-worker.10",
    "R004-worker.12",
    "R004-worker.13",
    "R004-worker.14",
    "R004-worker.16",
    "R004-state.05",
    "R004-state.08",
)
async def test_a_foreign_job_ends_as_seed_004_says(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    handled(worker_config, "Echo")
    await start_worker(worker_config)
    job_id = await tasks.foreign('{"n": 12345678901234567890123, "text": "ä"}', ttl_s=90)
    record = await tasks.ended(job_id)
    assert (record["status"], record["error"], record["ttl_s"]) == ("done", "", "90")
    assert json.loads(record["result"])["payload"] == {"n": 12345678901234567890123, "text": "ä"}
    assert record["payload"] == '{"n": 12345678901234567890123, "text": "ä"}', "the payload stays as it was"
    entries = [entry for _, entry in await tasks.redis.xrange(f"job:{job_id}:events")]
    assert all(set(entry) == {b"type", b"ts", b"step", b"data"} for entry in entries)
    assert [entry[b"type"] for entry in entries] == [b"queued", b"running", b"done"]
    for name in (f"job:{job_id}", f"job:{job_id}:events"):
        assert 60 < await tasks.redis.ttl(name) <= 90, "the job's own ttl_s"
    await tasks.empty()


@pytest.mark.req("R004-worker.09", "R004-worker.10", "R004-events.08")
async def test_a_foreign_job_that_fails_ends_as_error(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    worker_config.tasks.chat.max_retries = 0
    await start_worker(worker_config)
    job_id = await tasks.foreign(json.dumps({"do": [["fail", "HANDLER_HTTP_400", None]]}))
    error = {"code": "HANDLER_HTTP_400", "message": "as told", "attempts": 1}
    assert await tasks.error(job_id) == error
    assert (await tasks.events(job_id))[-1] == ("error", error)
    assert 0 < await tasks.redis.ttl(f"job:{job_id}") <= 60
    await tasks.empty()


ODD: list[Any] = [
    *({name: value} for name in ("created_ts", "updated_ts", "rev", "fence", "ttl_s")
      for value in ("abc", "-5", "1.5e3", "", "9" * 16, "9" * 30, "9" * 5000)),
    *({name: b"\xff"} for name in ("tenant", "trace_id", "job_id", "task", "status", "error", "worker", "told")),
    {"status": ""}, {"status": "DONE"}, {"status": "running"}, {"told": "1:x"}, {"told": "9" * 30 + ":9"},
]  # fmt: skip


@pytest.mark.req("R004-events.08", "R004-worker.08")
async def test_no_record_of_others_stops_a_worker_or_loses_its_job(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    handled(worker_config, "Echo")
    jobs = [await tasks.foreign() for _ in ODD]
    for job_id, fields in zip(jobs, ODD, strict=True):
        await tasks.redis.hset(f"job:{job_id}", mapping=fields)
    bare = await tasks.foreign()
    await tasks.redis.hdel(f"job:{bare}", "status", "created_ts", "ttl_s", "task", "job_id")
    await start_worker(worker_config)
    for job_id in [*jobs, bare]:
        assert (await tasks.ended(job_id))["status"] == "done"
        assert await tasks.redis.ttl(f"job:{job_id}") > 0
    await tasks.empty()


@pytest.mark.req("R004-events.08")
async def test_a_key_of_another_kind_does_not_keep_a_job_from_its_events(tasks: Tasks, resources: Resources) -> None:
    job_id, canceled = await tasks.foreign(), await tasks.foreign()
    steps: list[tuple[Script, list[str], list[str | int]]] = [
        (scripts.TASK_START, begin_keys(job_id), ["w", "here", "1-1", 1, 1, 0, "1-1"]),
        (scripts.TASK_EVENTS, record_keys(job_id), [1, "here", 1, "token", "{}"]),
        (scripts.TASK_SETTLE, begin_keys(job_id), [1, "here", "o", "null", "{}", 60, 60_000]),
    ]
    for (script, names, args), kind in zip(steps, ("running", "token", "done"), strict=True):
        await tasks.redis.set(f"job:{job_id}:events", "no stream")
        await resources.redis.call(script, names, args)
        assert await tasks.kinds(job_id) == [kind]
    await tasks.redis.set(f"job:{canceled}:events", "no stream")
    await tasks.ledger.cancel(canceled, "test")
    assert await tasks.kinds(canceled) == ["canceled"]


async def test_an_entry_that_names_the_job_of_a_manifest_is_a_dead_letter_and_leaves_that_alone(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    record = JobRecord(uuid7(), job_type="default", resource_total=1)
    await tasks.ledger.accept(record)
    before = await tasks.record(record.job_id)
    await tasks.redis.xadd("jobs:stream", {"job_id": record.job_id, "task": "chat", "payload": "{}"})
    await start_worker(worker_config)
    await tasks.empty()
    assert [letter.failure_code for letter in await tasks.letters()] == ["SYSTEM_INTERNAL"]
    assert await tasks.record(record.job_id) == before


RAW: list[tuple[str | bytes, str]] = [
    ("no json", "no json"),
    ("[1, 2]", "[1, 2]"),
    ('"text"', '"text"'),
    ("", ""),
    ('{"a": NaN}', '{"a": NaN}'),
    ("[" * 5000, "[" * 5000),
    ('{"a": 1} x', '{"a": 1} x'),
    ("\ufeff{}", "\ufeff{}"),
    ("{'a': 1}", "{'a': 1}"),
    (b'{"a": "\xff"}', '{"a": "\ufffd"}'),
    ('{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-16").decode(errors="replace")),
]


@pytest.mark.req("R004-worker.17")
@pytest.mark.parametrize(("raw", "text"), RAW, ids=range(len(RAW)))
async def test_a_payload_that_is_no_object_is_kept_as_raw(
    worker_config: Config, tasks: Tasks, start_worker: Start, raw: str | bytes, text: str
) -> None:
    handled(worker_config, "Echo")
    await start_worker(worker_config)
    result = await tasks.result(await tasks.foreign(raw))
    assert result["payload"] == {"_raw": text}


async def test_a_foreign_worker_and_ours_share_the_queue(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    """What a bare worker of the group has taken is its own; ours takes the rest."""
    await tasks.redis.xgroup_create("jobs:stream", "workers", id="0", mkstream=True)
    jobs = [await tasks.foreign('{"do": []}') for _ in range(5)]
    await tasks.redis.xreadgroup("workers", "bare", {"jobs:stream": ">"}, count=1)
    await start_worker(worker_config)
    own, *rest = jobs
    for job_id in rest:
        assert (await tasks.ended(job_id))["status"] == "done"
    assert (await tasks.record(own))["status"] == "queued", "it is with the bare worker"

    async def alone() -> bool:
        return await tasks.queued() == {"bare": 1}

    await eventually(alone, 60)
