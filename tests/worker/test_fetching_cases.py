"""Cases of fetching that say more than a fetch does, through a real worker: attempts, slots, records, circuits.

The numbers are those of `tests/cases/fetching.json`, whose other cases `tests/fetching` plays.
"""

import asyncio
import hashlib
import re
import resource
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import trustme

from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader, ProxyHint, TaskAttributes
from kernel.breakers import Breakers
from kernel.clock import SystemClock
from kernel.ids import uuid7
from kernel.log.topics import Topics
from kernel.redis import keys
from operator_svc import dead_letters
from operator_svc.letter_streams import NEWEST, DeadLetters
from tests.fetching.cases.proxy import forward
from tests.fetching.cases.tls import server_context
from tests.fetching.origin import Connection, Origin, Request, answer, echo, redirect, then_close, then_hang
from tests.worker.conftest import Jobs, Start
from tests.worker.test_jobs import all_of

MIB = 1 << 20
Line = dict[str, Any]


@dataclass
class Scene:
    """An origin, and jobs that a real worker does."""

    jobs: Jobs
    origin: Origin
    start: Start
    s3_client: Any
    job_id: str = ""

    async def lines(self, *resources: DownloadTask) -> dict[str, Line]:
        """The result lines of one job of these resources, by resource."""
        self.job_id = uuid7()
        for index, task in enumerate(resources, 1):
            task.job_id, task.job_type, task.resource_index = self.job_id, "default", index
            task.manifest_key = f"s3://fetchbox/manifests/default/{self.job_id}/metadata.json"
        await self.jobs.accept(self.job_id, "default", resources)
        await self.jobs.ended(self.job_id)
        return {line["resource_id"]: line for line in await self.jobs.results(self.job_id)}

    async def line(self, path: str = "/", **fields: Any) -> Line:
        """That of one resource."""
        return (await self.lines(self.task("r", path, **fields)))["r"]

    def task(self, name: str, path: str = "/", **fields: Any) -> DownloadTask:
        return DownloadTask(resource_id=name, url=self.origin.url(path) if path.startswith("/") else path, **fields)

    def body(self, name: str = "r") -> bytes | None:
        key = f"resources/default/{self.job_id}/{name}"
        try:
            return bytes(self.s3_client.get_object(Bucket="fetchbox", Key=key)["Body"].read())
        except self.s3_client.exceptions.NoSuchKey:
            return None

    async def told(self) -> list[Any]:
        """The lines of the log."""
        return await all_of(Topics(self.jobs.resources.redis, self.jobs.config).logs)

    async def letters(self) -> list[Any]:
        """The dead letters as an operator sees them."""
        office = DeadLetters(self.jobs.resources.redis, self.jobs.config)
        found = [await office.newest(partition, NEWEST) for partition in range(office.partitions)]
        return [dead_letters.shown(letter) for some in found for letter in some]


@pytest.fixture
async def scene(jobs: Jobs, start_worker: Start, s3_client: Any) -> AsyncIterator[Scene]:
    jobs.config.fetcher.read_timeout.FromMilliseconds(500)
    async with Origin() as origin:
        yield Scene(jobs, origin, start_worker, s3_client)


async def test_fc_001_a_cut_body_is_not_seen_and_fetched_again(scene: Scene) -> None:
    whole = b"0123456789" * 15
    seen: list[bytes | None] = []

    async def then_whole(connection: Connection, _: Request) -> None:
        seen.append(await asyncio.to_thread(scene.body))
        await connection.send(answer(whole))

    scene.origin.on("/", then_close(answer(whole[:100], length=150)), then_whole)
    await scene.start(scene.jobs.config)
    line = await scene.line()
    assert (line["state"], line["size"], line["attempts"]) == ("stored", 150, 2)
    assert (seen, scene.body()) == ([None], whole)
    told = [entry.fields for entry in await scene.told() if entry.resource_id]
    assert sorted(fields.get("code", "") for fields in told) == ["", "DOWNLOAD_TRUNCATED"]
    assert {"bytes_seen": "100", "bytes_expected": "150"}.items() <= next(f for f in told if f.get("code")).items()


async def test_fc_023_and_086_a_bomb_and_an_endless_head_cost_a_worker_little(scene: Scene) -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(256)) + packer.flush()

    async def for_ever(connection: Connection, _: Request) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\n")
        while not connection.writer.transport.is_closing():
            await connection.send(b"".join(b"X-%d: %s\r\n" % (number, b"y" * 500) for number in range(500)))

    scene.jobs.config.job_types["default"].max_bytes = 10 * MIB
    scene.origin.on("/bomb", answer(packed, "Content-Encoding: gzip"))
    scene.origin.on("/head", for_ever)
    scene.origin.on("/2000", answer(b"fine", *(f"X-{number}: y" for number in range(2000))))
    await scene.start(scene.jobs.config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = await scene.lines(*(scene.task(name, f"/{name}") for name in ("bomb", "head", "2000")))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert (lines["bomb"]["state"], lines["bomb"]["size"]) == ("stored", len(packed))
    assert lines["head"]["error_code"] == "DOWNLOAD_HEADERS_TOO_LARGE"
    assert lines["2000"]["state"] == "stored"


async def test_fc_042_errors_are_tried_again_after_growing_and_differing_delays(scene: Scene) -> None:
    names = [str(number) for number in range(12)]
    for name in names:
        bad = [answer(b"", status=status) for status in ("500 Internal Server Error", "502 Bad Gateway")]
        scene.origin.on(f"/{name}", *bad, answer(b"fine"))
    scene.jobs.config.worker.backoff.base.FromMilliseconds(40)
    scene.jobs.config.worker.backoff.max.FromMilliseconds(4000)
    await scene.start(scene.jobs.config)
    lines = await scene.lines(*(scene.task(name, f"/{name}") for name in names))
    assert [lines[name]["attempts"] for name in names] == [3] * len(names)
    delays: dict[str, list[int]] = {}
    for _, fields in await scene.jobs.resources.redis.commands.xrange(keys.job_events(scene.job_id)):
        data = orjson.loads(fields.get(b"data", b"{}") or b"{}")
        if "delay_ms" in data:
            delays.setdefault(data["resource_id"], []).append(data["delay_ms"])
    assert sorted(delays) == sorted(names)
    firsts, seconds = zip(*delays.values(), strict=True)
    assert sum(seconds) > sum(firsts), "they grow"
    assert len(set(firsts)) > 1, "they differ"


async def test_fc_071_a_password_in_a_url_is_sent_and_not_told(scene: Scene) -> None:
    scene.origin.on("/x", echo)
    scene.origin.on("/bad", answer(b"", status="404 Not Found"))
    await scene.start(scene.jobs.config)
    urls = {name: scene.origin.url(f"/{name}#part").replace("//", "//user:p4ssw0rd@") for name in ("x", "bad")}
    lines = await scene.lines(*(scene.task(name, url) for name, url in urls.items()))
    assert scene.origin.targets == ["/x", "/bad"] or sorted(scene.origin.targets) == ["/bad", "/x"]
    assert {request.get("authorization") for request in scene.origin.seen} == {"Basic dXNlcjpwNHNzdzByZA=="}
    head = scene.s3_client.head_object(Bucket="fetchbox", Key=f"resources/default/{scene.job_id}/x")
    record = await scene.jobs.ledger.get(scene.job_id)
    events = await scene.jobs.resources.redis.commands.xrange(keys.job_events(scene.job_id))
    letters = await scene.letters()
    assert len(letters) == 1
    for shown in (lines, head, record, events, letters, await scene.told()):
        assert "p4ssw0rd" not in str(shown)


async def test_fc_084_the_same_url_with_other_headers_is_another_object(scene: Scene) -> None:
    scene.origin.default = echo
    await scene.start(scene.jobs.config)
    accepts = {"a": "text/html", "b": "image/png"}
    tasks = [scene.task(n, "/x", headers=[HttpHeader(name="accept", value=value)]) for n, value in accepts.items()]
    lines = await scene.lines(*tasks)
    assert [lines[name]["state"] for name in accepts] == ["stored", "stored"]
    assert all(value.encode() in (scene.body(name) or b"") for name, value in accepts.items())
    assert len(scene.origin.seen) == 2


async def test_fc_095_a_silent_body_frees_its_slot(scene: Scene) -> None:
    scene.origin.on("/silent", then_hang(answer(bytes(100), length=1000)))
    scene.origin.on("/next", answer(b"fine"))
    scene.jobs.config.worker.count = 1
    scene.jobs.config.job_types["default"].max_retries = 1
    await scene.start(scene.jobs.config)
    lines = await scene.lines(scene.task("silent", "/silent"), *(scene.task(str(n), "/next") for n in range(3)))
    assert (lines["silent"]["error_code"], lines["silent"]["attempts"]) == ("DOWNLOAD_READ_TIMEOUT", 2)
    assert [lines[str(n)]["state"] for n in range(3)] == ["stored"] * 3
    facts = [entry.fields for entry in await scene.told() if entry.resource_id == "silent"]
    assert all(fact["bytes_seen"] == "100" and fact["bytes_expected"] == "1000" for fact in facts)


async def test_fc_104_a_proxys_refusal_is_its_own(scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    refusals = ("407 Proxy Authentication Required", "502 Bad Gateway")
    scene.jobs.config.circuit_breaker.min_samples = 1
    scene.jobs.config.job_types["default"].max_retries = 1
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(
            Origin(tls=server_context(authority, "127.0.0.1"), default=answer(b"fine"))
        )
        good = await stack.enter_async_context(Origin(default=forward))
        bad = [await stack.enter_async_context(Origin(default=answer(b"", status=status))) for status in refusals]
        ports = [proxy.port for proxy in bad]
        scene.jobs.config.proxies["bad"].urls.extend(f"http://127.0.0.1:{port}" for port in ports)
        scene.jobs.config.proxies["good"].urls.append(f"http://127.0.0.1:{good.port}")
        await scene.start(scene.jobs.config)
        hints = {"both": ProxyHint(primary_pool="bad", fallbacks=["good"]), "bad": ProxyHint(primary_pool="bad")}
        lines = await scene.lines(*(scene.task(n, target.url("/"), proxy_hint=h) for n, h in hints.items()))
        assert all(proxy.seen for proxy in bad)
    assert lines["both"]["state"] == "stored"
    assert lines["bad"]["error_code"] == "DOWNLOAD_PROXY"
    breakers = Breakers(scene.jobs.resources.redis, scene.jobs.config.circuit_breaker, SystemClock())
    assert [state.name for state in await breakers.list() if str(target.port) in state.name] == []
    await breakers.stop()
    (letter,) = await scene.letters()
    assert all(f"127.0.0.1:{port}" in letter.failure_message for port in ports)


async def test_fc_108_hints_in_every_spelling(scene: Scene) -> None:
    scene.origin.default = answer(b"data")
    digest = hashlib.sha256(b"data").hexdigest()
    hints = {"upper": f"SHA256:{digest.upper()}", "short": f"sha256:{digest[:63]}", "unknown": f"crc9:{digest}"}
    await scene.start(scene.jobs.config)
    lines = await scene.lines(
        *(scene.task(name, attributes=TaskAttributes(checksum_hint=hint)) for name, hint in hints.items())
    )
    assert lines["upper"]["state"] == "stored"
    assert [lines[name]["error_code"] for name in ("short", "unknown")] == ["VALIDATION_CHECKSUM_HINT"] * 2
    assert len(scene.origin.seen) == 1, "what cannot match is not fetched"


async def test_what_a_server_says_is_bounded_and_visible_wherever_it_is_recorded(scene: Scene) -> None:
    """Ten redirects with URLs of 60 KB, fields as long, and a reason phrase of terminal escapes that is no UTF-8."""

    def hostile(number: int) -> bytes:
        return redirect(f"/{number + 1}?" + "x" * 60_000)

    for number in range(9):
        scene.origin.on(f"/{number}", hostile(number))
    long = b"\xe9\x1b" + b"q" * 60_000
    fields = (b"Content-Type: text/plain; x=" + long[2:], b"Content-Disposition: a; filename=\xe9" + long[2:])
    phrase = b"HTTP/1.1 404 Non trouv\xe9\xc2\x9b31m " + b"z" * 50_000 + b"\r\nContent-Length: 0\r\n\r\n"
    scene.origin.on("/9", phrase, answer(b"fine", *fields))
    scene.jobs.config.worker.count = 1
    await scene.start(scene.jobs.config)
    lines = await scene.lines(scene.task("lost", "/0"), scene.task("found", "/0"))
    assert (lines["lost"]["error_code"], lines["lost"]["attempts"]) == ("DOWNLOAD_HTTP_404", 1)
    assert lines["found"]["state"] == "stored"
    records = [orjson.dumps(line) for line in lines.values()]
    records += [entry.SerializeToString() for entry in await scene.told()]
    records += [letter.SerializeToString() for letter in await scene.letters()]
    records.append(str(await scene.jobs.ledger.get(scene.job_id)).encode())
    records.append(str(await scene.jobs.resources.redis.commands.xrange(keys.job_events(scene.job_id))).encode())
    for record in records:
        assert len(record) < 40_000
        assert not re.search(rb"\x1b|\xc2\x9b", record)
    assert sum(map(len, records)) < 100_000
