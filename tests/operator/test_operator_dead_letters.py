"""Dead letters: listed, replayed once, purged in steps (seed 000 sections 1 and 3)."""

import asyncio
import json

import pytest

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.log.offsets import parse_id
from kernel.redis import keys
from operator_svc.dead_letters import forwards
from operator_svc.letter_streams import DeadLetters


async def listed(operator, **request) -> list:
    found, token = [], ""
    while True:
        answer = await operator.ListDeadLetters(pb.ListDeadLettersRequest(page_token=token, **request))
        found += answer.dead_letters
        token = answer.next_page_token
        if not token:
            return found


async def replayed(operator, *positions: str, **request) -> list[tuple[str, int]]:
    answer = await operator.ReplayDeadLetters(pb.ReplayDeadLettersRequest(positions=positions, **request))
    return [(outcome.outcome, outcome.replay) for outcome in answer.outcomes]


async def failed_job(hand, total: int = 1, **facts) -> tuple[str, list[str]]:
    """A failed job and the positions of its letters."""
    job_id = await hand.ended(total, "DOWNLOAD_HTTP_403")
    return job_id, [await hand.letter(job_id, index, **facts) for index in range(1, total + 1)]


@pytest.mark.req("R000-1.21")
async def test_letters_are_listed_newest_first_over_all_partitions(operator, hand):
    positions = [await hand.letter(f"job{n}", url="https://u:feed@h/x?sig=feed", tenant="t") for n in range(23)]
    found = await listed(operator, page_size=5)

    def age(position: str) -> tuple[int, int, int]:
        partition, _, entry = position.partition(":")
        return *parse_id(entry), int(partition)

    assert [letter.position for letter in found] == sorted(positions, key=age, reverse=True)
    letter = next(letter for letter in found if letter.job_id == "job22")
    assert (letter.id, letter.resource_id) == ("job22/r1/0", "r1")
    assert (letter.failure_code, letter.attempts, letter.tenant) == ("DOWNLOAD_HTTP_403", 1, "t")
    assert letter.failed_at.seconds > 0
    assert "feed" not in str(found)


async def test_filters_and_tokens_of_letters(operator, hand, refused):
    await hand.letter("a", 1)
    await hand.letter("a", 2, "DOWNLOAD_DNS")
    await hand.letter("b", 1)
    assert [letter.resource_id for letter in await listed(operator, job_id="a")] == ["r2", "r1"]
    assert [letter.job_id for letter in await listed(operator, failure_code="DOWNLOAD_HTTP_403")] == ["b", "a"]
    assert await listed(operator, job_id="a", failure_code="AUTH_DENIED") == []
    token = (await operator.ListDeadLetters(pb.ListDeadLettersRequest(page_size=1))).next_page_token
    with refused("INVALID_PAYLOAD"):
        await operator.ListDeadLetters(pb.ListDeadLettersRequest(page_token=token, job_id="a"))


@pytest.mark.req("R000-1.22")
async def test_a_replay_puts_the_task_back_and_opens_the_job(operator, hand):
    job_id, (position,) = await failed_job(hand, tenant="t", attempt=4)
    assert await replayed(operator, position) == [("replayed", 1)]
    (task,) = await hand.tasks()
    expected = hand.task(job_id, 1, tenant="t", replay=1)
    assert task == expected, "the task as it was, with a new replay number and no attempts"
    assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).status == "in_progress"
    partition = hand.topics.status.partition_of(job_id)
    assert [received.message.state for received in await hand.topics.status.read(partition)][-1] == 2
    assert await hand.settle(job_id, 1) == "running", "the old run cannot settle it any more"
    assert await hand.settle(job_id, 1, replay=1) == "done"


async def test_a_repetition_publishes_no_second_task(operator, hand):
    job_id, (position,) = await failed_job(hand)
    answers = await asyncio.gather(*(replayed(operator, position) for _ in range(20)))
    assert sorted(answer[0][0] for answer in answers) == ["already_replayed"] * 19 + ["replayed"]
    assert len(await hand.tasks()) == 1
    assert await hand.settle(job_id, 1, replay=1) == "done"
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert await replayed(operator, job_id=job_id) == [("already_replayed", 1)]
    assert len(await hand.tasks()) == 1


async def test_a_crash_between_the_two_steps_is_finished_by_the_repetition(operator, hand):
    job_id, (position,) = await failed_job(hand)
    assert await hand.ledger.replay(job_id, "r1", 1, 0, 3) == ("replayed", 1)
    assert await hand.tasks() == []
    assert await replayed(operator, position) == [("replayed", 1)]
    assert await replayed(operator, position) == [("already_replayed", 1)]
    assert [task.replay for task in await hand.tasks()] == [1]


@pytest.mark.fault(25)
async def test_the_cap_holds_unless_forced_and_history_is_kept(operator, hand):
    job_id, positions = await failed_job(hand)
    for number in range(1, 4):
        assert await replayed(operator, positions[-1]) == [("replayed", number)]
        await hand.settle(job_id, 1, "DOWNLOAD_HTTP_403", replay=number)
        positions.append(await hand.letter(job_id, 1, replay=number))
    assert await replayed(operator, positions[-1]) == [("too_many_replays", 3)]
    assert await replayed(operator, positions[-1], force=True) == [("replayed", 4)]
    assert [letter.replay for letter in await listed(operator, job_id=job_id)] == [3, 2, 1, 0]


async def test_what_cannot_be_replayed_is_told(operator, hand, refused):
    canceled = await hand.job()
    canceled_letter = await hand.letter(canceled)
    await operator.CancelJob(pb.CancelJobRequest(job_id=canceled))
    fine = await hand.ended()
    fine_letter = await hand.letter(fine)
    gone = await hand.letter("pruned")
    answers = await replayed(operator, canceled_letter, fine_letter, gone, "0:1-1", "99:1-1")
    assert [word for word, _ in answers] == ["canceled", "not_failed", "gone", "not_found", "not_found"]
    assert await hand.tasks() == []
    for bad in ("x", "0:", "a:1-1"):
        with refused("INVALID_PAYLOAD"):
            await replayed(operator, bad)
    with refused("INVALID_PAYLOAD"):
        await replayed(operator)


@pytest.mark.fault(46)
async def test_a_whole_job_is_replayed_and_more_than_500_letters_by_repetition(operator, hand):
    job_id = await hand.job(620)
    for index in range(1, 621):
        await hand.settle(job_id, index, "DOWNLOAD_DNS")
        await hand.letter(job_id, index)
    first = await replayed(operator, job_id=job_id)
    assert first == [("replayed", 1)] * 500
    second = await replayed(operator, job_id=job_id)
    assert second[:120] == [("replayed", 1)] * 120
    assert len(second) == 500
    assert len(await hand.tasks()) == 620


async def test_a_replay_of_a_job_leaves_out_the_letters_that_it_causes(hand, config):
    """Tasks that fail again at once would be replayed up to the cap in one call, and with `force` without an end."""
    job_id, _ = await failed_job(hand, 3)
    letters = DeadLetters(hand.clients, config)
    seen = []
    async for letter in forwards(letters, hand.topics.dlq.partition_of(job_id)):
        seen.append(letter.message.task.resource_id)
        assert len(seen) <= 3
        await hand.letter(job_id, len(seen), replay=1)
    assert seen == ["r1", "r2", "r3"]
    empty = 1 - hand.topics.dlq.partition_of(job_id)
    assert [letter async for letter in forwards(letters, empty)] == []


@pytest.mark.parametrize("payload", [b"\xff\xff\xff", b"", b"\x0a\x05ab"])
@pytest.mark.fault(29)
async def test_an_undecodable_entry_goes_back_byte_for_byte(operator, hand, payload):
    origin = keys.stream(keys.TASKS, 3)
    letter = DeadLetterTask(failure_code="VALIDATION_TASK", undecodable=payload, id=f"{origin}/5-0", failed_at_ms=5)
    await hand.topics.dlq.publish(letter, key="x")
    (shown,) = await listed(operator)
    assert (shown.id, shown.job_id) == (f"{origin}/5-0", "")
    assert await replayed(operator, shown.position) == [("replayed", 1)]
    assert await replayed(operator, shown.position) == [("already_replayed", 1)]
    entries = await hand.clients.commands.execute_command("XRANGE", origin, "-", "+")
    fields = entries[0][1]
    assert len(entries) == 1
    assert list(fields.values() if isinstance(fields, dict) else fields[1::2]) == [payload]


async def test_an_entry_that_is_no_letter_is_listed_and_cannot_be_replayed(operator, hand):
    await hand.clients.commands.xadd(keys.stream(keys.DLQ, 0), {"payload": b"\xff\xff"})
    (shown,) = await listed(operator)
    assert await replayed(operator, shown.position) == [("not_found", 0)]


@pytest.mark.req("R000-3.07")
@pytest.mark.fault(46)
async def test_5000_letters_are_purged_in_bounded_steps(operator, hand):
    letters = [
        DeadLetterTask(task=DownloadTask(job_id=f"j{n % 10}", resource_id=f"r{n}"), failed_at_ms=n + 1, id=f"{n}")
        for n in range(5000)
    ]
    pipe = hand.clients.commands.pipeline(transaction=False)
    for letter in letters:
        stream = keys.stream(keys.DLQ, hand.topics.dlq.partition_of(letter.task.job_id))
        pipe.xadd(stream, {"payload": letter.SerializeToString()})
    await pipe.execute()
    answer = await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(job_id="j3"))
    assert (answer.purged, answer.remaining) == (500, False)
    steps = []
    while True:
        answer = await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(before_ms=4001))
        steps.append(answer.purged)
        if not answer.remaining:
            break
    assert max(steps) <= 500
    assert sum(steps) == 3600
    rest = await listed(operator, page_size=500)
    assert len(rest) == 900
    assert min(letter.failed_at.ToMilliseconds() for letter in rest) == 4001
    some = [letter.position for letter in rest[:3]]
    answer = await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(positions=[*some, "0:1-1", "77:1-1"]))
    assert (answer.purged, answer.remaining) == (3, False)
    assert len(await listed(operator, page_size=500)) == 897


async def test_a_purge_that_names_nothing_is_refused(operator, hand, refused):
    await hand.letter("a")
    with refused("INVALID_PAYLOAD"):
        await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest())
    with refused("INVALID_PAYLOAD"):
        await operator.PurgeDeadLetters(pb.PurgeDeadLettersRequest(positions=["0:1-1"] * 501))
    assert len(await listed(operator)) == 1


async def test_names_of_replays_live_as_long_as_letters(hand, config):
    config.streams.dlq.retention.FromMilliseconds(50)
    letters = DeadLetters(hand.clients, config)
    lane = keys.stream(keys.TASKS, 0)
    assert await letters.republish("a", lane, b"x")
    assert not await letters.republish("a", lane, b"x")
    await asyncio.sleep(0.06)  # longer than the retention, by the clock of the server
    assert await letters.republish("b", lane, b"x")
    assert await hand.clients.commands.zrange(keys.replays(lane), 0, -1) == [b"b"]


async def test_the_last_error_is_one_that_stands(operator, hand):
    """It goes with the failure that it tells of: another one that is left is told then, and none after the last."""

    async def told() -> str:
        return (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).last_error.code

    job_id, positions = await failed_job(hand, 2)
    for index, code in ((1, "DOWNLOAD_HTTP_404"), (2, "DOWNLOAD_HTTP_410")):
        error = json.dumps({"code": code, "message": "no", "attempts": 1})
        await hand.clients.commands.hset(keys.job_resources(job_id), f"x:r{index}", error)
        await hand.clients.commands.hset(keys.job(job_id), "error", error)
    assert await told() == "HTTP_410"
    assert await replayed(operator, positions[1]) == [("replayed", 1)]
    assert await told() == "HTTP_404", "that of the resource that is left"
    assert await hand.settle(job_id, 2, replay=1) == "partial"
    assert await told() == "HTTP_404"
    assert await replayed(operator, positions[0]) == [("replayed", 1)]
    assert await hand.settle(job_id, 1, replay=1) == "done"
    answer = await operator.GetJob(pb.GetJobRequest(job_id=job_id))
    assert (answer.status, answer.HasField("last_error")) == ("completed", False)
