"""Dead file jobs: listed, put back once, purged in steps (seed 002)."""

import asyncio
import json
import random

import pytest
from file_hand import digest, failed_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel import pages
from kernel.redis import keys, scripts
from operator_svc import file_letters
from operator_svc.file_letter_list import FileLetters
from tests.examples import most

GARBAGE = (b"", b"no json", b"\xff\xfe", b"[1]", b'{"id": "a"}', b'{"id": 7, "filepath": "/x"}', b'{"id":"a"', b"null")


async def page(operator, **request) -> pb.ListFileDeadLettersResponse:
    return await operator.ListFileDeadLetters(pb.ListFileDeadLettersRequest(**request))


async def listed(operator, **request) -> list:
    found, token = [], ""
    while True:
        answer = await page(operator, page_token=token, **request)
        found += answer.dead_letters
        token = answer.next_page_token
        if not token:
            return found


async def replayed(operator, *entries: bytes | str, **request) -> list[tuple[str, int]]:
    names = [digest(entry) if isinstance(entry, bytes) else entry for entry in entries]
    answer = await operator.ReplayFileDeadLetters(pb.ReplayFileDeadLettersRequest(digests=names, **request))
    if names:
        assert [one.digest for one in answer.outcomes] == names
    return [(one.outcome, one.replay) for one in answer.outcomes]


async def purged(operator, *entries: bytes, **request) -> tuple[int, bool]:
    names = [digest(entry) for entry in entries]
    answer = await operator.PurgeFileDeadLetters(pb.PurgeFileDeadLettersRequest(digests=names, **request))
    return answer.purged, answer.remaining


async def test_letters_are_listed_newest_first_with_all_they_say(operator, files):
    entries = [await files.dead(n) for n in range(23)]
    found = await listed(operator, page_size=5)
    assert [letter.digest for letter in found] == [digest(entry) for entry in reversed(entries)]
    letter = found[0]
    assert (letter.job_id, letter.filepath, letter.queue) == ("f22", "/data/22.csv", "jobqueue:low_priority")
    assert (letter.retries, letter.replays) == (3, 0)
    assert (letter.failure_code, letter.failure_message) == ("STORAGE_UNAVAILABLE", "no")
    assert letter.failed_at_ms == letter.failed_at.ToMilliseconds() == 1_700_000_000_022


async def test_the_last_page_has_no_token_whatever_the_size(operator, files):
    for n in range(4):
        await files.dead(n)
    assert len((await page(operator, page_size=4)).dead_letters) == 4
    assert not (await page(operator, page_size=4)).next_page_token
    assert (await page(operator, page_size=3)).next_page_token
    assert await listed(operator, failure_code="NOTHING") == []


async def test_secrets_in_messages_are_hidden_and_paths_are_not(operator, files):
    told = "PUT https://u:feed@s3/b?X-Amz-Signature=feed failed; Authorization: Bearer feedfeedfeed"
    await files.dead(1, message=told)
    (letter,) = await listed(operator)
    assert "feed" not in letter.failure_message
    assert letter.failure_message.startswith("PUT https://REDACTED@s3/b")
    assert letter.filepath == "/data/1.csv"


async def test_times_are_read_in_both_notations_and_nonsense_is_none(operator, files):
    times = ["2023-11-14T22:13:20.123456789Z", 1_700_000_000_123, "yesterday", -1, True, None, 1e3, 2**50]
    for n, at in enumerate(times):
        await files.dead(n, failed_at=at)
    shown = [letter.failed_at_ms for letter in reversed(await listed(operator))]
    assert shown == [1_700_000_000_123, 1_700_000_000_123, 0, 0, 0, 0, 0, 0]


async def test_failures_that_others_wrote_are_shown_as_far_as_they_can_be(operator, files):
    failures = ["text", 7, None, {"code": 7, "message": ["x"]}, {"code": "A" * 99, "message": "b" * 5000}, {}]
    for n, failure in enumerate(failures):
        await files.dead(n, failure=failure, retries=2**40)
    await files.push(files.names.dead_letters, b'{"id":"a","filepath":"/x","failure":{"code":"A","message":"\\ud800"}}')
    newest, *found = await listed(operator)
    assert (newest.failure_code, newest.failure_message) == ("A", "?")
    assert [len(letter.failure_code) for letter in reversed(found)] == [17, 17, 17, 17, 64, 17]
    assert max(len(letter.failure_message) for letter in found) == 1000
    assert {letter.retries for letter in found} == {2**32 - 1}


async def test_what_the_reaper_gave_up_stands_untouched_and_is_named(operator, files):
    await files.push(files.names.dead_letters, files.job())
    (letter,) = await listed(operator)
    assert (letter.failure_code, letter.failure_message, letter.failed_at_ms) == ("SYSTEM_CRASH_LOOP", "", 0)
    assert not letter.HasField("failed_at")


async def test_entries_that_are_no_jobs_are_listed_without_content_and_can_be_purged(operator, files):
    await files.push(files.names.dead_letters, *GARBAGE, b'{"secret": "feed"}')
    found = await listed(operator)
    assert len(found) == len(GARBAGE) + 1
    assert {letter.failure_code for letter in found} == {"VALIDATION_UNDECODABLE"}
    assert {(letter.job_id, letter.filepath, letter.queue) for letter in found} == {("", "", "")}
    assert "feed" not in str(found)
    assert {letter.digest for letter in found} >= {digest(entry) for entry in GARBAGE}
    assert await listed(operator, failure_code="VALIDATION_UNDECODABLE") == found
    assert await replayed(operator, *GARBAGE) == [("undecodable", 0)] * len(GARBAGE)
    assert len(await files.letters()) == len(GARBAGE) + 1, "they stay where they are"
    assert await purged(operator, *GARBAGE) == (len(GARBAGE), False)
    assert await files.letters() == [b'{"secret": "feed"}']


async def test_filters_and_tokens(operator, files, refused):
    for n in range(6):
        await files.dead(n, "HANDLER_DEADLINE" if n % 2 else "STORAGE_UNAVAILABLE")
    found = await listed(operator, failure_code="HANDLER_DEADLINE", page_size=2)
    assert [letter.job_id for letter in found] == ["f5", "f3", "f1"]
    token = (await page(operator, page_size=1)).next_page_token
    for other in ({"failure_code": "HANDLER_DEADLINE", "page_token": token}, {"page_token": "nonsense"}):
        with refused("INVALID_PAYLOAD"):
            await page(operator, **other)


@pytest.mark.parametrize("place", ["x", "-1", "9" * 19, "9" * 5000])
async def test_tokens_that_somebody_made_up_are_refused(operator, refused, place):
    with refused("INVALID_PAYLOAD"):
        await page(operator, page_token=pages.token(place, ("files", "")))


@pytest.mark.parametrize(("place", "shown"), [("0", 0), ("1", 0), ("2", 1), ("9" * 18, 1)])
async def test_a_place_in_a_token_is_not_believed(operator, files, place, shown):
    """It may lie far beyond the list, as after a purge."""
    await files.dead()
    assert len((await page(operator, page_token=pages.token(place, ("files", "")))).dead_letters) == shown


async def test_rare_matches_make_short_pages_whose_tokens_lead_on(operator, files, monkeypatch):
    monkeypatch.setattr(file_letters, "SCAN_LIMIT", 10)
    wanted = await files.dead(0, "HANDLER_DEADLINE")
    for n in range(1, 35):
        await files.dead(n)
    answer = await page(operator, failure_code="HANDLER_DEADLINE")
    assert not answer.dead_letters
    assert answer.next_page_token
    assert [letter.digest for letter in await listed(operator, failure_code="HANDLER_DEADLINE")] == [digest(wanted)]


async def test_pages_are_stable_while_the_list_grows(operator, files):
    first = [await files.dead(n) for n in range(10)]
    found, token = [], ""
    for _ in range(4):
        answer = await page(operator, page_size=3, page_token=token)
        found += [letter.digest for letter in answer.dead_letters]
        token = answer.next_page_token
        await files.dead(random.randrange(100, 10**9))
        await files.dead(random.randrange(100, 10**9))
    assert found == [digest(entry) for entry in reversed(first)]
    assert not token


@settings(max_examples=most(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_letter_that_stays_is_missed_whatever_happens_between_pages(operator, files, data):
    """Others fail, replay, purge, and retention trims, between any two pages."""
    await files.clients.commands.flushdb()
    made = [
        await files.dead(n % 7, failed_at=failed_at(n // 2)) for n in range(data.draw(st.integers(0, 14), "letters"))
    ]
    found, token, number = [], "", 100
    while True:
        answer = await page(operator, page_size=3, page_token=token)
        found += [letter.digest for letter in answer.dead_letters]
        token = answer.next_page_token
        if not token:
            break
        for action in data.draw(st.lists(st.sampled_from("fprt"), max_size=4), "meanwhile"):
            there = await files.letters()
            if action == "f":
                number += 1
                await files.dead(number)
            elif action == "t":
                await files.clients.commands.ltrim(files.names.dead_letters, 0, -2)
            elif there:
                one = data.draw(st.sampled_from(there), "one")
                await (purged if action == "p" else replayed)(operator, one)
    missing = {digest(entry) for entry in await files.letters() if entry in made} - set(found)
    assert not missing


async def test_a_replay_puts_the_job_back_with_a_new_count_and_its_history(operator, files):
    failed = {"code": "STORAGE_UNAVAILABLE", "message": "away"}
    entry = await files.dead(1, message="away", odd={"n": 847458834325543643, "list": []})
    other = await files.dead(2)
    assert await replayed(operator, entry) == [("replayed", 1)]
    (job,) = await files.queued()
    assert job == json.loads(files.job(1)) | {
        "retries": 0,
        "replays": 1,
        "odd": {"n": 847458834325543643, "list": []},
        "last_failure": failed | {"failed_at": failed_at(1)},
    }
    assert await files.letters() == [other]


async def test_history_is_of_the_last_failure_and_the_cap_holds_unless_forced(operator, files):
    entry = await files.dead(1, code="DOWNLOAD_DNS")
    for number in (1, 2, 3):
        assert await replayed(operator, entry) == [("replayed", number)]
        job = (await files.queued())[-1]
        assert (job["replays"], "failure" in job, "failed_at" in job) == (number, False, False)
        await files.clients.commands.delete(files.names.default)
        failure = {"code": f"HANDLER_HTTP_50{number}", "message": "no"}
        entry = json.dumps(job | {"retries": 3, "failure": failure, "failed_at": failed_at(number)}).encode()
        await files.push(files.names.dead_letters, entry)
    assert job["last_failure"] == {"code": "HANDLER_HTTP_502", "message": "no", "failed_at": failed_at(2)}
    assert await replayed(operator, entry) == [("too_many_replays", 3)]
    assert await files.letters() == [entry]
    assert await replayed(operator, entry, force=True) == [("replayed", 4)]
    assert (await files.queued())[0]["last_failure"]["code"] == "HANDLER_HTTP_503"
    (letter,) = [*await listed(operator), None]
    assert letter is None


async def test_a_job_goes_back_to_where_it_belongs(operator, files):
    """By its `origin_queue`, else by its priority, else to the lowest queue; an absent list is made."""
    high, low = files.names.queues
    entries = [
        await files.dead(1, origin_queue=high),
        await files.dead(2, origin_queue="another:list", priority="high"),
        await files.dead(3, origin_queue="", priority="urgent"),
        await files.dead(4, origin_queue=low, priority="high"),
    ]
    await files.push(high, files.job(9))
    assert await replayed(operator, *entries) == [("replayed", 1)] * 4
    assert [job["id"] for job in await files.queued(high)] == ["f9", "f1", "f2"]
    assert [job["id"] for job in await files.queued(low)] == ["f3", "f4"]


async def test_a_full_queue_takes_a_replay(operator, files, config):
    """Somebody has asked for it; it waits behind all others."""
    config.producer.max_backlog = 1
    await files.push(files.names.default, files.job(8), files.job(9))
    entry = await files.dead(1)
    assert await replayed(operator, entry) == [("replayed", 1)]
    assert [job["id"] for job in await files.queued()] == ["f8", "f9", "f1"]


async def test_a_queue_that_is_no_list_keeps_the_letter(operator, files):
    high, _ = files.names.queues
    await files.clients.commands.set(high, "somebody's")
    stays, goes = await files.dead(1, origin_queue=high), await files.dead(2)
    assert await replayed(operator, stays, goes) == [("no_queue", 1), ("replayed", 1)]
    assert await files.letters() == [stays]
    await files.clients.commands.delete(high)
    assert await replayed(operator, stays) == [("replayed", 1)]


async def test_a_repetition_finds_it_gone(operator, files):
    entry = await files.dead()
    answers = await asyncio.gather(*(replayed(operator, entry) for _ in range(20)))
    assert sorted(answer[0][0] for answer in answers) == ["not_found"] * 19 + ["replayed"]
    assert len(await files.queued()) == 1
    assert await files.letters() == []


async def test_of_letters_that_are_alike_each_is_replayed_for_itself(operator, files):
    entry, *_ = [await files.dead(1) for _ in range(3)]
    assert await replayed(operator, entry) == [("replayed", 1)]
    assert await files.letters() == [entry, entry]
    assert await replayed(operator, entry, entry, entry) == [("replayed", 1), ("replayed", 1), ("not_found", 0)]
    assert len(await files.queued()) == 3
    entry, *_ = [await files.dead(1) for _ in range(3)]
    assert await purged(operator, entry) == (1, False)
    assert await purged(operator, entry, entry, entry) == (2, False)


@pytest.mark.parametrize("script", [scripts.FILE_REPLAY, scripts.FILE_PURGE], ids=lambda script: script.name)
async def test_a_call_whose_reply_was_lost_does_nothing_when_it_is_repeated(files, script):
    """Two letters alike stand side by side, so that the second one has moved into the place of the first."""
    entry = await files.dead(1)
    await files.dead(1)
    await files.dead(2)
    replays = script is scripts.FILE_REPLAY
    names = [files.names.dead_letters, keys.file_answer("call"), *(files.names.queues if replays else ())]
    item = [2, digest(entry), *((2, b"again") if replays else ())]
    for _ in range(3):
        assert await files.clients.call(script, names, [60_000, *item]) == b"m"
        assert len(await files.letters()) == 2
        assert await files.held(files.names.default) == [b"again"] * replays
    assert await files.clients.commands.pttl(keys.file_answer("call")) > 0, "and it is forgotten"


async def test_letters_that_moved_between_the_look_and_the_purge_are_found_again(files, config):
    """What has moved into their places stays."""
    letters = FileLetters(files.clients, config)
    made = [await files.dead(n) for n in range(6)]
    seen = await letters.newest(4, 3)
    assert [letter.payload for letter in seen] == [made[3], made[2], made[1]]
    await files.clients.commands.lrem(files.names.dead_letters, 1, made[2])
    await files.clients.commands.rpop(files.names.dead_letters)
    assert await letters.purge(seen) == 2
    assert await files.letters() == [made[5], made[4]]


async def test_places_count_from_the_oldest_also_where_fewer_are_left_than_asked_for(files, config):
    letters = FileLetters(files.clients, config)
    made = [await files.dead(n) for n in range(3)]
    for below, limit in ((3, 3), (3, 500), (500, 500), (4, 500)):
        found = await letters.newest(below, limit)
        assert [(letter.place, letter.payload) for letter in found] == [(3, made[2]), (2, made[1]), (1, made[0])]
    assert [letter.place for letter in await letters.newest(4, 2)] == [3]
    assert await letters.newest(500, 2) == await letters.newest(0, 2) == []


async def test_letters_that_moved_between_the_look_and_the_step_are_found_again(files, config):
    letters = FileLetters(files.clients, config)
    made = [await files.dead(n) for n in range(6)]
    seen = await letters.newest(6, 6)
    await files.clients.commands.ltrim(files.names.dead_letters, 0, -3)
    assert await letters.replay(seen) == ["replayed"] * 4 + ["not_found"] * 2
    assert await files.letters() == []
    assert [job["id"] for job in await files.queued()] == ["f2", "f3", "f4", "f5"]
    assert len(made) == 6


async def test_no_letter_is_lost_or_doubled_by_any_number_of_operators(operator, files):
    """They replay and purge in the same list, which others fill and retention trims."""
    entries = [await files.dead(n) for n in range(300)]
    chosen = random.sample(entries, 200)

    async def trims() -> list:
        for _ in range(10):
            await files.clients.commands.rpoplpush(files.names.dead_letters, "trimmed")
            await files.dead(random.randrange(1000, 10**9))
        return []

    replaying = [replayed(operator, *chosen[start : start + 50]) for start in (0, 25, 50, 75, 0)]
    purging = [purged(operator, *chosen[start : start + 50]) for start in (100, 150, 125)]
    answers = await asyncio.gather(*replaying, *purging, trims())
    back = [job["id"] for job in await files.queued()]
    trimmed = await files.held("trimmed")
    count = sum(outcome == "replayed" for answer in answers[:5] for outcome, _ in answer)
    gone = sum(answer[0] for answer in answers[5:8])
    assert len(back) == len(set(back)) == count
    left = await files.letters()
    assert len(left) + len(trimmed) + count + gone == 310
    assert not {json.loads(entry)["id"] for entry in (*left, *trimmed)} & set(back)
    assert not [entry for entry in left if entry.startswith(b"jobqueue:")], "no mark is left"


async def test_the_newest_are_replayed_where_none_is_named(operator, files):
    for n in range(502):
        await files.dead(n, "HANDLER_DEADLINE" if n % 2 else "STORAGE_UNAVAILABLE")
    assert await replayed(operator, failure_code="HANDLER_DEADLINE") == [("replayed", 1)] * 251
    assert {job["last_failure"]["code"] for job in await files.queued()} == {"HANDLER_DEADLINE"}
    for n in range(251):
        await files.dead(1000 + n)
    assert await replayed(operator) == [("replayed", 1)] * 500
    assert await replayed(operator) == [("replayed", 1)] * 2
    assert await replayed(operator) == []


async def test_wrong_requests_are_refused(operator, refused):
    for names in (["x"], ["A" * 40], ["a" * 40] * 501):
        with refused("INVALID_PAYLOAD"):
            await operator.ReplayFileDeadLetters(pb.ReplayFileDeadLettersRequest(digests=names))
        with refused("INVALID_PAYLOAD"):
            await operator.PurgeFileDeadLetters(pb.PurgeFileDeadLettersRequest(digests=names))
    with refused("INVALID_PAYLOAD"):
        await operator.PurgeFileDeadLetters(pb.PurgeFileDeadLettersRequest())
    with refused("INVALID_PAYLOAD"):
        await page(operator, page_size=-1)


async def test_a_list_that_is_none_holds_nothing(operator, files):
    await files.clients.commands.set(files.names.dead_letters, "somebody's")
    assert await listed(operator) == []
    assert await replayed(operator, "a" * 40) == [("not_found", 0)]
    assert await replayed(operator) == []
    assert await purged(operator, all=True) == (0, False)


async def test_the_oldest_go_first_where_all_are_purged(operator, files):
    entries = [await files.dead(n) for n in range(507)]
    assert await purged(operator, all=True) == (500, True)
    assert await files.letters() == list(reversed(entries[500:]))
    assert await purged(operator, all=True) == (7, False)
    assert await purged(operator, all=True) == (0, False)


@pytest.mark.long
@pytest.mark.fault(46)
async def test_200_000_letters_are_purged_and_replayed_without_holding_up_redis(operator, files):
    """No step is longer than a fraction of a second, wherever in the list it works."""
    redis = files.clients.commands
    made = [files.job(n, failure={"code": "A", "message": "b" * 80}) for n in range(200_000)]
    for start in range(0, len(made), 2_000):
        await files.push(files.names.dead_letters, *made[start : start + 2_000])
    before = await redis.config_get("slowlog-log-slower-than")
    await redis.config_set("slowlog-log-slower-than", 400_000)
    await redis.slowlog_reset()
    middle = random.sample(made[90_000:110_000], 500)
    assert await replayed(operator, *middle) == [("replayed", 1)] * 500
    gone, remaining = 0, True
    while remaining:
        count, remaining = await purged(operator, all=True)
        gone += count
    slow = await redis.slowlog_get()
    await redis.config_set("slowlog-log-slower-than", before["slowlog-log-slower-than"])
    assert gone == 199_500
    assert [entry for entry in slow if entry["command"].startswith(b"EVAL")] == []
    assert await redis.exists(files.names.dead_letters) == 0
    assert len(await files.queued()) == 500


async def test_all_of_it_over_rest(operator, files, rest):
    one, two = await files.dead(1), await files.dead(2)
    status, answer = await rest.get("/operators/files/dlq", {"page_size": "1"})
    assert status == 200
    (letter,) = answer["dead_letters"]
    assert letter == {
        "digest": digest(two),
        "job_id": "f2",
        "filepath": "/data/2.csv",
        "queue": "jobqueue:low_priority",
        "retries": 3,
        "replays": 0,
        "failure_code": "STORAGE_UNAVAILABLE",
        "failure_message": "no",
        "failed_at_ms": "1700000000002",
        "failed_at": "2023-11-14T22:13:20.002Z",
    }
    _, answer = await rest.get("/operators/files/dlq", {"page_token": answer["next_page_token"]})
    assert [letter["digest"] for letter in answer["dead_letters"]] == [digest(one)]
    assert answer["next_page_token"] == ""
    status, answer = await rest.post("/operators/files/dlq:replay", {"digests": [digest(one)]})
    assert (status, answer) == (200, {"outcomes": [{"digest": digest(one), "outcome": "replayed", "replay": 1}]})
    status, answer = await rest.post("/operators/files/dlq:purge", {})
    assert status == 400
    status, answer = await rest.post("/operators/files/dlq:purge", {"all": True})
    assert (status, answer) == (200, {"purged": 1, "remaining": False})
    assert len(await files.queued()) == 1
