"""Tasks of seed 004 from the queue to their end: payload in, result, events and logs out."""

import json
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from tests.worker.conftest import Start
from tests.worker.task_rig import Tasks, handled


@pytest.mark.req("R004-worker.16", "R004-worker.08", "R004-worker.10", "R004-worker.11")
async def test_a_task_runs_from_the_queue_to_its_end(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    handled(worker_config, "Echo")
    await start_worker(worker_config)
    payload = b'{"big": 123456789012345678901234567890, "pi": 3.140, "none": null}'
    job_id = await tasks.create(payload)
    record = await tasks.ended(job_id)
    assert record["status"] == "done"
    result = json.loads(record["result"])
    assert result["payload"] == {"big": 123456789012345678901234567890, "pi": 3.14, "none": None}
    assert (result["json"], result["attempt"]) == (payload.decode(), 1)
    assert await tasks.kinds(job_id) == ["queued", "running", "done"]
    await tasks.empty()


async def test_events_keep_their_order_and_come_before_the_end(
    worker_config: Config, tasks: Tasks, start_worker: Start
) -> None:
    await start_worker(worker_config)
    job_id = await tasks.do(
        ["token", "He"],
        ["token", "llo"],
        ["progress", {"done": 1, "total": 2}],
        ["token", " world"],
        ["log", "half way", {"at": 2}],
        ["event", "found", {"url": "x", "big": 10**30}],
        ["give", {"answer": 42}],
    )
    assert await tasks.result(job_id) == {"answer": 42}
    await tasks.empty()
    told = await tasks.events(job_id)
    assert await tasks.text(job_id) == "Hello world"
    assert [event for event in told if event[0] not in ("token", "running", "queued")] == [
        ("progress", {"done": 1, "total": 2}),
        ("log", {"message": "half way", "at": 2}),
        ("found", {"url": "x", "big": 10**30}),
        ("done", {"attempts": 1}),
    ]
    kinds = [kind for kind, _ in told]
    assert kinds.index("progress") < len(kinds) - 1 - kinds[::-1].index("token") < kinds.index("log")
    lines = {line.message: line for line in await tasks.logs(job_id)}
    assert dict(lines["half way"].fields) == {"at": "2"}


async def test_many_tokens_are_whole_and_in_order(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    await start_worker(worker_config)
    job_id = await tasks.do(["tokens", 5000])
    await tasks.ended(job_id)
    assert await tasks.text(job_id) == "".join(f"{number} " for number in range(5000))


HIDDEN = "the handler failed; the log has the details under the error id "
FAILURES: list[tuple[Any, str, str]] = [
    (["event", "done", {}], "HANDLER_ERROR", HIDDEN),
    (["event", "Bad kind", {}], "HANDLER_ERROR", HIDDEN),
    (["event", "found", [1]], "HANDLER_ERROR", HIDDEN),
    (["event", "found", {"x": "y" * 65_530}], "HANDLER_ERROR", HIDDEN),
    (["nan", "x"], "HANDLER_RESULT", "the data of an event 'progress' is no JSON: a number"),
    (["flood", 21], "HANDLER_RESULT", "the handler told more than 20 events (tasks.max_events)"),
    (["swallowed_flood", 21], "HANDLER_RESULT", "the handler told more than 20 events (tasks.max_events)"),
    (["give", "x" * 200], "HANDLER_RESULT", "the result has 202 bytes, and tasks.max_result_bytes allows 100"),
    (["raise", "ValueError", "on purpose"], "HANDLER_ERROR", HIDDEN),
    (["raise", "SystemExit", "bye"], "HANDLER_ERROR", HIDDEN),
    (["raise", "KeyboardInterrupt", "no"], "HANDLER_ERROR", HIDDEN),
    (["raise_without_text"], "HANDLER_ERROR", HIDDEN),
    (["raise_group"], "HANDLER_ERROR", HIDDEN),
    (["token_of_bytes"], "HANDLER_ERROR", HIDDEN),
    (["give", "\ud800"], "HANDLER_RESULT", "the result is no JSON: a text in it has half a surrogate pair"),
    (["cancel_itself"], "HANDLER_ERROR", "the handler let something be canceled that it waited for"),
    (["cancel_own"], "HANDLER_ERROR", "the handler let something be canceled that it waited for"),
    (["fail", "HANDLER_HTTP_400", None], "HANDLER_HTTP_400", "as told"),
    (["fail", "no code \ud800", None], "HANDLER_ERROR", "'no code \\ud800' is no failure code: as told"),
]


@pytest.mark.req("R004-worker.09", "R004-worker.10")
@pytest.mark.parametrize(
    ("step", "code", "message"), FAILURES, ids=[f"{n}-{row[0][0]}" for n, row in enumerate(FAILURES)]
)
async def test_what_a_handler_does_wrong_is_its_tasks_failure(
    worker_config: Config, tasks: Tasks, start_worker: Start, step: Any, code: str, message: str
) -> None:
    worker_config.tasks.max_events = 20
    worker_config.tasks.max_result_bytes = 100
    worker_config.tasks.chat.max_retries = 0
    await start_worker(worker_config)
    error = await tasks.error(await tasks.do(step))
    assert (error["code"], error["attempts"]) == (code, 1)
    assert error["message"].startswith(message)
    await tasks.empty()
    assert [letter.failure_code for letter in await tasks.letters()] == [code]
    assert await tasks.result(await tasks.do(["give", 1])) == 1, "the worker goes on"


async def test_a_task_without_a_handler_fails_at_once(worker_config: Config, tasks: Tasks, start_worker: Start) -> None:
    await start_worker(worker_config)
    for name in ("embed", "other"):
        error = await tasks.error(await tasks.foreign(task=name))
        assert (error["code"], error["attempts"]) == ("HANDLER_UNKNOWN", 1)
    await tasks.empty()
