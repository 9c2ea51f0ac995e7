"""Policies, secrets, deferrals, cancellation and memory."""

import asyncio
import gc
import resource
from collections.abc import Callable
from itertools import pairwise

import brotli
import pytest
import zstandard

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.jobs.jobs_pb2 import DownloadTask, ProxyHint, StorageHint, TaskAttributes
from kernel.config.loading import defaults
from kernel.telemetry import metrics
from tests.fetching.origin import Connection, Request, Script, answer, drip, echo, then_hang
from tests.fetching.world import World
from worker_svc.fetch import FetchFailure, policy_of
from worker_svc.fetch.limits import ByteBudget
from worker_svc.fetch.sink import Description, Sink

MIB = 1024 * 1024


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to be")


@pytest.mark.req("R001-3.05", "R001-3.06", "R001-3.08", "R001-3.09")
def test_the_tasks_hints_win_over_the_job_type_and_that_over_the_defaults() -> None:
    config = defaults()
    plain = policy_of(config, DownloadTask(job_id="j", job_type="default", resource_id="a/b"))
    assert (plain.bucket, plain.key) == ("fetchbox", "resources/default/j/a%2Fb")
    assert plain.proxy_pools == ()
    assert plain.max_bytes == config.fetcher.max_bytes

    kind = JobType(handler="default", checksum="lenient", max_bytes=7)
    kind.storage.bucket, kind.storage.key_prefix = "gallery", "g"
    kind.proxy.primary = "eu"
    kind.proxy.fallbacks.append("world")
    config.job_types["gallery"].CopyFrom(kind)
    task = DownloadTask(job_id="j", job_type="gallery", resource_id="r")
    typed = policy_of(config, task)
    assert (typed.bucket, typed.key) == ("gallery", "g/j/r")
    assert typed.proxy_pools == ("eu", "world")
    assert typed.lenient_checksum
    assert typed.max_bytes == 7

    task.storage_hint.CopyFrom(StorageHint(bucket="own", key="exact/key", metadata={"a": "b"}))
    task.proxy_hint.CopyFrom(ProxyHint(primary_pool="mine"))
    task.attributes.CopyFrom(TaskAttributes(tags={"a": "tag", "c": "d"}))
    own = policy_of(config, task)
    assert (own.bucket, own.key, own.proxy_pools) == ("own", "exact/key", ("mine",))
    assert own.metadata == {"a": "b", "c": "d"}


async def test_a_key_that_climbs_is_refused_before_anything_is_sent(world: World) -> None:
    task = world.task()
    task.storage_hint.key = "resources/../secret"
    with pytest.raises(FetchFailure, match="VALIDATION_TASK"):
        await (await world.fetcher()).fetch(task, policy_of(world.config, task))
    assert world.origin.connections == 0


@pytest.mark.parametrize("bucket", ["../x", "a/b", "..", "a..b", "a?b", "a#b", "é" * 3, "a\n", "x" * 256])
async def test_a_bucket_that_leads_elsewhere_is_refused_before_anything_is_sent(world: World, bucket: str) -> None:
    task = world.task()
    task.storage_hint.bucket = bucket
    with pytest.raises(FetchFailure, match="VALIDATION_TASK"):
        await (await world.fetcher()).fetch(task, policy_of(world.config, task))
    assert world.origin.connections == 0


async def test_secrets_are_filled_in_when_sent_and_never_shown(world: World) -> None:
    for name in ("API_TOKEN", "BROKEN", "ELSEWHERE"):
        world.declare(name, "127.0.0.1")
    world.secrets.update(API_TOKEN="t0k3n")
    world.origin.on("/", echo)
    await world.fetch(headers={"authorization": "Bearer ${secret:API_TOKEN}", "x-two": "${secret:API_TOKEN}-x"})
    request = world.origin.seen[0]
    assert request.get("authorization") == "Bearer t0k3n"
    assert request.get("x-two") == "t0k3n-x"
    failure = await world.fails(headers={"authorization": "${secret:OTHER}"}, resource_id="r2")
    assert failure.code == "AUTH_SECRET_REFUSED"
    assert "'OTHER'" in failure.message
    failure = await world.fails(headers={"authorization": "${secret:ELSEWHERE}"}, resource_id="r2")
    assert failure.code == "AUTH_SECRET_UNKNOWN"
    world.secrets["BROKEN"] = "a\r\nEvil: 1"
    failure = await world.fails(headers={"x-a": "${secret:BROKEN}"}, resource_id="r2")
    assert failure.code == "VALIDATION_TASK"
    assert "Evil" not in f"{failure} {failure.facts}"
    assert len(world.origin.seen) == 1


async def test_identity_and_our_name_are_asked_for_unless_the_task_asks_for_others(world: World) -> None:
    world.origin.default = echo
    await world.fetch()
    await world.fetch(headers={"accept-encoding": "gzip", "user-agent": "Mine", "accept": "image/*"})
    first, second = world.origin.seen
    assert first.get("accept-encoding") == "identity"
    assert str(first.get("user-agent")).startswith("FetchBox/")
    assert [second.get(name) for name in ("accept-encoding", "user-agent", "accept")] == ["gzip", "Mine", "image/*"]


async def test_a_range_of_the_tasks_own_is_stored_as_a_part(world: World) -> None:
    part = answer(b"x" * 100, "Content-Range: bytes 0-99/200", status="206 Partial Content")
    world.origin.on("/", part)
    assert (await world.fetch(headers={"range": "bytes=0-99"})).flags == ("partial",)
    assert (await world.fails(headers={"range": "bytes=5-99"}, resource_id="r2")).code == "DOWNLOAD_UNEXPECTED_PARTIAL"


@pytest.mark.parametrize(("coding", "pack"), [("zstd", zstandard.compress), ("br", brotli.compress)])
async def test_other_codings_are_checked_too(world: World, coding: str, pack: object) -> None:
    packed = pack(b"text " * 10_000)  # type: ignore[operator]
    world.origin.on("/good", answer(packed, f"Content-Encoding: {coding}"))
    world.origin.on("/cut", answer(packed[:-3], f"Content-Encoding: {coding}"))
    await world.fetch("/good")
    assert world.body() == packed
    assert (await world.fails("/cut", resource_id="r2")).code == "DOWNLOAD_TRUNCATED_ENCODING"


async def test_a_busy_host_defers_and_gives_the_slot_to_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker_svc.fetch.fetcher.HOST_PATIENCE", 0.2)
    world.settings().per_host = 2
    world.origin.on("/slow", then_hang(answer(b"x", length=100)))
    other = await world.another_origin(default=answer(b"fine"))
    running = [asyncio.create_task(world.fetch("/slow", resource_id=f"s{number}")) for number in range(2)]
    await until(lambda: len(world.origin.seen) == 2)
    deferred = await world.fails("/slow", resource_id="r3")
    assert not deferred.counts
    assert deferred.retry_after == 0.2
    assert len(world.origin.seen) == 2
    await world.fetch(other.url())
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_cancelled_fetch_leaves_no_upload_and_no_place_taken(world: World) -> None:
    world.settings().per_host = 1
    world.origin.on("/", drip(answer(b"", length=1 << 30), bytes(MIB), 0.01))
    task = asyncio.create_task(world.fetch())
    await until(lambda: bool(world.open_uploads()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not world.open_uploads())
    assert world.body() is None
    world.origin.on("/next", answer(b"fine"))
    await world.fetch("/next")


async def test_memory_stays_flat_over_many_large_bodies(world: World) -> None:
    """Eight bodies of 64 MiB at once, with room for 48 MiB: far below one body in memory each."""
    budget = ByteBudget(48 * MIB)
    fetcher = await world.new_fetcher(budget=budget)
    piece = bytes(MIB)

    async def large(connection: Connection, _: Request) -> None:
        await connection.send(answer(b"", length=64 * MIB))
        for _ in range(64):
            await connection.send(piece)

    world.origin.on("/", large)
    await world.fetch(fetcher=fetcher, resource_id="warm")
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fetched = await asyncio.gather(*(world.fetch(fetcher=fetcher, resource_id=f"r{number}") for number in range(8)))
    assert all(one.size == 64 * MIB for one in fetched)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 96 * 1024
    assert budget.free == 48 * MIB


async def test_slow_bodies_that_may_become_large_starve_nobody(world: World) -> None:
    """Ten bodies of 4 GB whose bytes hardly come, and room for less than what each of them might hold."""
    world.settings().per_host = 64
    fetcher = await world.new_fetcher(budget=ByteBudget(4 * MIB))
    begun = asyncio.Semaphore(0)

    async def trickle(connection: Connection, _: Request) -> None:
        await connection.send(answer(bytes(100_000), length=4 << 30))
        begun.release()
        await connection.reader.read(1)

    world.origin.on("/slow", trickle)
    world.origin.on("/other", answer(bytes(3 * MIB)))
    slow = [asyncio.create_task(world.fetch("/slow", fetcher=fetcher, resource_id=f"s{n}")) for n in range(10)]
    for _ in slow:
        await begun.acquire()
    fetched = await asyncio.gather(*(world.fetch("/other", fetcher=fetcher, resource_id=f"r{n}") for n in range(4)))
    assert [one.size for one in fetched] == [3 * MIB] * 4
    assert not any(task.done() for task in slow)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_proxy_that_failed_rests(world: World) -> None:
    gone = await world.another_origin()
    await gone.__aexit__()
    world.config.proxies["p"].urls.append(f"http://127.0.0.1:{gone.port}")
    world.config.proxies["q"].urls.extend(f"http://127.0.0.{host}:1" for host in range(2, 9))
    fetcher = await world.new_fetcher()
    before = metrics.REGISTRY.get_sample_value("fetchbox_proxy_failures_total", {"pool": "p"}) or 0
    with pytest.raises(FetchFailure):
        await world.fetch(pools=("p",), fetcher=fetcher)
    assert metrics.REGISTRY.get_sample_value("fetchbox_proxy_failures_total", {"pool": "p"}) == before + 1
    order = [proxy.name for proxy in fetcher._proxies.candidates(("p", "q"))]
    assert order[-1] == f"127.0.0.1:{gone.port}"
    orders = [tuple(proxy.name for proxy in fetcher._proxies.candidates(("q",))) for _ in range(20)]
    assert any(one != two for one, two in pairwise(orders)), "equals share the load"


async def test_provenance_is_stored_with_the_object(world: World) -> None:
    world.origin.on("/a", answer(b"", "Location: /b?X-Amz-Signature=s3cret", status="302 Found"))
    world.origin.on("/b", answer(b"data", "Content-Type: text/plain"))
    fetched = await world.fetch("/a", tags={"colour": "blue", "sha256": "forged", "address": "forged"})
    assert fetched.hops == (world.origin.url("/a"),)
    assert fetched.final_url == world.origin.url("/b?X-Amz-Signature=REDACTED")
    assert fetched.address == "127.0.0.1"
    assert fetched.http_status == 200
    stored = world.metadata()["Metadata"]
    assert stored["sha256"] == fetched.sha256
    assert stored["address"] == "127.0.0.1"
    assert stored["colour"] == "blue"
    assert "s3cret" not in str(stored)


async def test_the_floor_of_speed_grows_with_what_a_body_holds(world: World) -> None:
    """Each of two bodies comes at the same speed; the one that holds megabytes of memory is too slow."""
    world.settings().low_speed_bytes = 100
    world.settings().low_speed_window.FromMilliseconds(300)
    world.settings().timeout.FromSeconds(8)
    fetcher = await world.new_fetcher()

    def trickle(first: int) -> Script:
        return drip(answer(bytes(first), length=1 << 30), bytes(1000), 0.02)

    world.origin.on("/little", trickle(1000))
    world.origin.on("/much", trickle(4 * MIB))
    little = asyncio.create_task(world.fetch("/little", fetcher=fetcher))
    failure = await world.fails("/much", fetcher=fetcher, resource_id="r2")
    assert failure.code == "DOWNLOAD_TOO_SLOW"
    assert not little.done()
    little.cancel()
    await asyncio.gather(little, return_exceptions=True)


async def test_a_body_is_in_memory_once_while_it_is_put(world: World) -> None:
    """The store gets the very block that gathered, and gathers none when there was one piece."""
    taken: list[bytes | bytearray] = []

    class Store:
        async def put(self, _bucket: str, _key: str, body: bytes | bytearray, **_: object) -> bool:
            taken.append(body)
            return True

    sink = Sink(Store(), "b", "k", 8 * MIB)  # type: ignore[arg-type]  # nothing larger is sent here
    pieces = [b"x" * 1000, b"y" * 1000, b"z" * 1000]
    for piece in pieces:
        await sink.write(piece, lambda: Description("text/plain", {}))
    await sink.commit({"sha256": "0"}, lambda: Description("text/plain", {}))
    assert taken[0] is sink._held
    assert bytes(taken[0]) == b"".join(pieces)
    single = Sink(Store(), "b", "k", 8 * MIB)  # type: ignore[arg-type]
    await single.write(pieces[0], lambda: Description("text/plain", {}))
    await single.commit({}, lambda: Description("text/plain", {}))
    assert taken[1] is pieces[0]
