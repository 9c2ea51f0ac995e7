"""A cut body whose continuation is refused: the cut is what failed, and the next attempt begins from the task's URL."""

import hashlib

import pytest

from tests.fetching.origin import Answer, answer, redirect, then_close, then_reset
from tests.fetching.world import World

BODY = b"0123456789" * 100
HEAD = answer(BODY, 'ETag: "v1"', "Accept-Ranges: bytes")
PAGE = answer(b"<!doctype html><html><title>expired</title>", "Content-Type: text/html")
OTHER = answer(b"x" * 500, "Content-Range: bytes 500-999/1000", 'ETag: "v1"', status="206 Partial Content")

REFUSALS: dict[str, list[Answer]] = {
    **{str(status): [answer(b"", status=f"{status} No")] for status in (401, 403, 404, 410, 416, 451)},
    "302": [redirect("/nowhere")],
    "204": [answer(b"", status="204 No Content", length=None)],
    "cut-again": [then_close(HEAD[:-20])],
    "reset": [then_reset(b"")],
    "no-http": [b"nonsense\r\n\r\n"],
    "another-page": [PAGE],
    "empty": [answer(b"")],
    "too-large": [answer(b"x", length=1 << 40)],
    "other-bytes-of-one-tag": [OTHER, answer(b"", status="403 Expired")],
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_continuation_begins_anew_from_the_url_of_the_task(world: World, name: str) -> None:
    """A mirror's signed URL expires while a body is on its way; the task's own URL leads to a fresh one."""
    world.origin.on("/", redirect("/mirror?sig=1"), redirect("/fresh?sig=2"))
    world.origin.on("/mirror", then_close(HEAD[:-500]), *REFUSALS[name])
    world.origin.on("/fresh", HEAD)
    hint = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    outcome = await world.outcome(hint=hint, mime="application/octet-stream")
    assert outcome.fetched is not None, outcome.failures
    assert outcome.fetched.final_url.endswith("/fresh?sig=REDACTED")
    assert world.body() == BODY
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TRUNCATED"]
    assert len(world.origin.targets) < 9


async def test_pieces_that_make_no_whole_are_fetched_anew_within_the_attempt(world: World) -> None:
    world.origin.on("/", then_close(HEAD[:-500]), OTHER, HEAD)
    await world.fetch(hint=f"sha256:{hashlib.sha256(BODY).hexdigest()}")
    assert world.body() == BODY
    assert len(world.origin.seen) == 3


async def test_a_wait_that_the_refusal_asks_for_holds_for_the_fleet(world: World) -> None:
    busy = answer(b"", "Retry-After: 30", status="429 Too Many Requests")
    world.origin.on("/", then_close(HEAD[:-500]), busy)
    failure = await world.fails()
    assert (failure.code, failure.retry_after) == ("DOWNLOAD_TRUNCATED", 30)
    assert not (await world.fails()).counts
