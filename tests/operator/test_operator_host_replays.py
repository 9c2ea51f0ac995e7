"""All dead letters of a host go back with one call, and the host is asked again."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from cli import dlq
from cli.main import app
from fetchbox.operator.v1 import operator_service_pb2 as pb
from kernel.breakers import Breakers
from kernel.clock import SystemClock
from kernel.hosts import site_of, site_of_url
from operator_svc import replays

DOWN = "DOWNLOAD_HOST_DOWN"


async def replayed(operator, **request) -> list[str]:
    answer = await operator.ReplayDeadLetters(pb.ReplayDeadLettersRequest(**request))
    return [outcome.outcome for outcome in answer.outcomes]


async def failed(hand, *urls: str, code: str = DOWN) -> str:
    """A failed job with a dead letter for each of these URLs."""
    job_id = await hand.ended(len(urls), code)
    for index, url in enumerate(urls, 1):
        await hand.letter(job_id, index, code, url=url)
    return job_id


async def test_the_letters_of_a_host_are_replayed_whatever_their_jobs(operator, hand):
    first = await failed(hand, "http://down.example/a", "https://user:pw@DOWN.example:443/b?x", "http://other.example/")
    second = await failed(hand, "http://down.example./c", "http://down.example:8080/d")
    assert await replayed(operator, host="down.example", failure_code=DOWN) == ["replayed"] * 3
    again = [(task.job_id, task.resource_index) for task in await hand.tasks()]
    assert sorted(again) == sorted([(first, 1), (first, 2), (second, 1)])
    for job_id in (first, second):
        assert (await operator.GetJob(pb.GetJobRequest(job_id=job_id))).status == "in_progress"
    assert await replayed(operator, host="down.example") == ["already_replayed"] * 3
    assert await replayed(operator, host="http://down.example:8080/whatever") == ["replayed"]


async def test_a_code_and_a_host_that_match_nothing(operator, hand, refused):
    await failed(hand, "http://down.example/a", code="DOWNLOAD_HTTP_404")
    for request in ({"host": "down.example", "failure_code": DOWN}, {"host": "elsewhere.example"}):
        with refused("NOT_FOUND"):
            await replayed(operator, **request)
    for host in ("a b", "http://", "x:99999999", "a/b"):
        with refused("INVALID_PAYLOAD"):
            await replayed(operator, host=host)
    with refused("INVALID_PAYLOAD"):
        await replayed(operator)
    assert await replayed(operator, host="down.example", failure_code="DOWNLOAD_HTTP_404") == ["replayed"]


async def test_the_circuit_of_the_host_is_closed_first(operator, hand, config, resources):
    config.circuit_breaker.min_samples = 1
    breakers = Breakers(resources.redis, config.circuit_breaker, SystemClock())
    breakers.record("host:down.example:8443", False)
    await breakers.stop()
    await failed(hand, "https://down.example:8443/a")
    looking = Breakers(resources.redis, config.circuit_breaker, SystemClock())
    (state,) = await looking.states(["host:down.example:8443"])
    assert state.state == "open"
    assert await replayed(operator, host="down.example:8443") == ["replayed"]
    (state,) = await looking.states(["host:down.example:8443"])
    assert state.state == "closed"
    await looking.stop()


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("http://example.org/a:b@c", "example.org"),
        ("HTTPS://u:p@Example.ORG:443?x", "example.org"),
        ("http://example.org:443/", "example.org:443"),
        ("http://b\u00fccher.example", "xn--bcher-kva.example"),
        ("http://[::1]:8080/x", "::1:8080"),
        ("http://[::1]", "::1"),
        ("ftp://example.org/", ""),
        ("http://:80/", ""),
        ("x", ""),
    ],
)
def test_sites_are_those_of_the_circuits(url: str, site: str) -> None:
    assert site_of_url(url) == site
    if site:
        assert site_of(site) == site


async def test_one_command_replays_more_letters_than_a_call_takes(service, config, hand, monkeypatch):
    monkeypatch.setattr(replays, "MAX_LETTERS", 4)
    monkeypatch.setattr(dlq, "_MOST", 4)
    job_id = await failed(hand, *(f"http://down.example/{number}" for number in range(10)))
    await failed(hand, "http://other.example/")
    arguments = ["--operator", config.operator.listen, "dlq", "replay", "--json", "--host", "down.example"]

    async def called(*more: str) -> tuple[int, list[str]]:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, *more])
        found = json.loads(done.stdout).get("outcomes", [])
        return done.exit_code, [outcome["outcome"] for outcome in found]

    assert await called() == (0, ["replayed"] * 10)
    assert {task.job_id for task in await hand.tasks()} == {job_id}
    code, outcomes = await called()
    assert (code, set(outcomes)) == (0, {"already_replayed"})
    assert await called("--code", "DOWNLOAD_DNS") == (1, [])
