"""The HTTP status of the last answer is in the record of every failure that had one."""

import pytest

from tests.fetching.origin import Answer, answer, redirect, then_close
from tests.fetching.world import World

FAILURES: dict[str, tuple[Answer, int]] = {
    "DOWNLOAD_HTTP_404": (answer(b"", status="404 Not Found"), 404),
    "DOWNLOAD_HTTP_503": (answer(b"", status="503 Busy"), 503),
    "DOWNLOAD_NO_CONTENT": (answer(b"", status="204 No Content", length=None), 204),
    "DOWNLOAD_BAD_REDIRECT": (answer(b"", status="302 Found"), 302),
    "DOWNLOAD_UNEXPECTED_PARTIAL": (answer(b"x", "Content-Range: bytes 0-0/9", status="206 Partial"), 206),
    "DOWNLOAD_TRUNCATED": (then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), 200),
    "DOWNLOAD_EMPTY_BODY": (answer(b""), 200),
    "DOWNLOAD_TRUNCATED_ENCODING": (answer(b"\x1f\x8b\x08", "Content-Encoding: gzip"), 200),
    "DOWNLOAD_CONNECTION_RESET": (then_close(b""), 0),
}


@pytest.mark.parametrize("code", FAILURES)
async def test_a_failure_has_the_status_of_the_last_answer(world: World, code: str) -> None:
    world.origin.default, status = FAILURES[code]
    failure = await world.fails("/x?token=abc")
    assert failure.code == code
    assert failure.facts.get("http_status", 0) == status
    if status:
        assert failure.facts["final_url"] == world.origin.url("/x?token=REDACTED")


async def test_after_redirects_it_is_that_of_the_end(world: World) -> None:
    world.origin.on("/", redirect("/b"))
    world.origin.on("/b", answer(b"", status="410 Gone"))
    failure = await world.fails()
    assert failure.facts["http_status"] == 410
    assert failure.facts["final_url"] == world.origin.url("/b")
    world.origin.on("/loop", redirect("/loop"))
    failure = await world.fails("/loop")
    assert failure.code == "DOWNLOAD_TOO_MANY_REDIRECTS"
    assert failure.facts["http_status"] == 302


async def test_the_place_that_failed_is_named_even_where_it_did_not_answer(world: World) -> None:
    gone = await world.another_origin()
    await gone.__aexit__()
    world.origin.on("/", redirect(gone.url("/b?token=abc")))
    failure = await world.fails()
    assert failure.code == "DOWNLOAD_CONNECTION_REFUSED"
    assert failure.facts["final_url"] == gone.url("/b?token=REDACTED")
    assert "final_url" not in (await world.fails(gone.url())).facts
