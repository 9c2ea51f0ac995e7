"""Files that are manifests: submitted to a real ingest service, and what that says."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from cli.embedded.ports import free_ports
from fetchbox.config.v1.config_pb2 import Config
from ingest_svc import bootstrap as ingest_bootstrap
from kernel.queue.work.types import Failure, Success
from kernel.service.resources import Resources
from tests.ingest.harness import GOOD, Client
from tests.worker.conftest import eventually
from tests.worker.file_rig import Files, files_of

_DOCUMENT = json.dumps(GOOD).encode()


@asynccontextmanager
async def _ingest(config: Config, resources: Resources) -> AsyncIterator[Client]:
    config.worker.ingest = config.ingest.listen
    async with Client.serving(config, resources) as client:
        yield client


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[Client]:
    async with _ingest(config, resources) as made:
        yield made


@pytest.fixture
async def files(config: Config, client: Client, tmp_path: Path) -> AsyncIterator[Files]:
    async with files_of(config, tmp_path) as made:
        yield made


async def test_a_manifest_becomes_a_fetch_job_and_no_object(files: Files, client: Client) -> None:
    await files.done(files.drop("deep/crawl.manifest.json", _DOCUMENT))
    (job_id,) = await client.jobs()
    assert [task.resource_id for task in await client.tasks(job_id)] == ["one", "two"]
    assert await client.stored(job_id) == _DOCUMENT
    assert await files.keys() == []


async def test_a_manifest_that_is_delivered_twice_makes_one_job(files: Files, client: Client) -> None:
    path = files.drop("crawl.manifest.json", _DOCUMENT)
    for _ in range(3):
        await files.done(path, job_id="the-same")
    assert len(await client.jobs()) == 1
    await asyncio.gather(*(files.done(path, job_id="at the same time Ж") for _ in range(5)))
    assert len(await client.jobs()) == 2, "another job is another submit"


async def test_a_manifest_that_was_changed_between_two_attempts_is_no_conflict(files: Files, client: Client) -> None:
    path = files.drop("crawl.manifest.json", _DOCUMENT)
    await files.done(path, job_id="the-same")
    path.write_bytes(_DOCUMENT + b"\n")
    await files.done(path, job_id="the-same")
    assert len(await client.jobs()) == 2


async def test_other_json_is_stored(files: Files, client: Client) -> None:
    await files.done(files.drop("manifest.json", _DOCUMENT))
    await files.done(files.drop("crawl.manifest.json.bak", _DOCUMENT))
    assert await files.keys() == ["files/crawl.manifest.json.bak", "files/manifest.json"]
    assert await client.jobs() == []


@pytest.mark.parametrize(
    ("document", "word"),
    [(b"", "JSON"), (b"{", "JSON"), (b"[]", "object"), (b'{"manifest_version": "v2"}', "manifest_version")],
)
async def test_a_manifest_that_ingest_refuses_is_final(files: Files, document: bytes, word: str) -> None:
    failure = await files.failed(files.drop("bad.manifest.json", document))
    assert (failure.code, failure.counts) == ("VALIDATION_MANIFEST", True)
    assert word in failure.message


async def test_a_manifest_that_is_too_large_is_not_even_read(files: Files, config: Config) -> None:
    path = files.root / "large.manifest.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    async with asyncio.timeout(20):
        failure = await files.failed(path)
    assert failure.code == "VALIDATION_MANIFEST"
    assert "ingest.max_document_bytes" in failure.message


async def test_the_limit_of_ingest_itself(config: Config, resources: Resources, tmp_path: Path) -> None:
    elsewhere = Config()
    elsewhere.CopyFrom(config)
    elsewhere.ingest.max_document_bytes = 1024
    config.worker.ingest = config.ingest.listen
    async with Client.serving(elsewhere, resources), files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("a.manifest.json", _DOCUMENT + b" " * 2000))
    assert failure.code == "VALIDATION_MANIFEST"


async def test_a_job_type_that_ingest_does_not_know(config: Config, client: Client, tmp_path: Path) -> None:
    config.worker.manifest_job_type = "unheard-of"
    async with files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("a.manifest.json", _DOCUMENT))
    assert failure.code == "VALIDATION_MANIFEST"
    assert "unheard-of" in failure.message


async def test_a_key_that_another_has_used_is_a_conflict(files: Files, client: Client) -> None:
    path = files.drop("a.manifest.json", _DOCUMENT)
    await files.done(path, job_id="mine")
    redis = client.resources.redis.commands
    (key,) = [name async for name in redis.scan_iter(match="*file:mine:*")]
    await client.submit(GOOD | {"metadata": {}}, {"x-fetchbox-idempotency-key": "theirs"})
    (theirs,) = [name async for name in redis.scan_iter(match="*theirs*")]
    await redis.rename(theirs, key)
    failure = await files.failed(path, job_id="mine")
    assert (failure.code, failure.counts) == ("VALIDATION_MANIFEST", True)


@pytest.mark.parametrize(("token", "code"), [("", "AUTH_INGEST"), ("wrong", "AUTH_INGEST"), ("right", "")])
async def test_credentials(config: Config, resources: Resources, tmp_path: Path, token: str, code: str) -> None:
    config.security.tenant_tokens["right"] = "acme"
    config.worker.ingest_token = token
    async with _ingest(config, resources), files_of(config, tmp_path) as files:
        path = files.drop("a.manifest.json", _DOCUMENT)
        if code:
            failure = await files.failed(path)
            assert (failure.code, failure.counts) == (code, True)
            assert not token or token not in failure.message
        else:
            await files.done(path)


async def test_another_tenant_in_the_manifest_is_a_matter_of_credentials(
    config: Config, resources: Resources, tmp_path: Path
) -> None:
    config.security.tenant_tokens["right"] = "acme"
    config.worker.ingest_token = "right"
    document = json.dumps(GOOD | {"attributes": {"tenant": "other"}}).encode()
    async with _ingest(config, resources), files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("a.manifest.json", document))
    assert failure.code == "AUTH_INGEST"


def _secured(config: Config, folder: Path, *, mutual: bool) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("localhost", "127.0.0.1")
    tls = config.security.tls
    tls.cert_file, tls.key_file = str(folder / "cert.pem"), str(folder / "key.pem")
    pair.private_key_pem.write_to_path(tls.key_file)
    chain = [*pair.cert_chain_pems] if mutual else [*pair.cert_chain_pems, authority.cert_pem]
    Path(tls.cert_file).write_bytes(b"".join(blob.bytes() for blob in chain))
    if mutual:
        tls.client_ca_file = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(tls.client_ca_file)


@pytest.mark.parametrize("mutual", [False, True])
async def test_tls_of_the_platform_is_that_of_its_services_among_themselves(
    config: Config, resources: Resources, tmp_path: Path, mutual: bool
) -> None:
    _secured(config, tmp_path, mutual=mutual)
    config.worker.ingest = config.ingest.listen
    service = await ingest_bootstrap.build(config, resources)
    await service.start()
    try:
        async with files_of(config, tmp_path) as files:
            path = files.drop("a.manifest.json", _DOCUMENT)
            await files.done(path)
        config.security.ClearField("tls")
        async with files_of(config, tmp_path) as files:
            failure = await files.failed(path)
        assert (failure.code, failure.counts) == ("HANDLER_CONNECTION", False)
    finally:
        await service.stop()


async def test_certificates_that_are_gone_are_no_missing_file(config: Config, tmp_path: Path) -> None:
    config.security.tls.cert_file = config.security.tls.key_file = str(tmp_path / "none.pem")
    async with files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("a.manifest.json", _DOCUMENT))
    assert failure.code == "AUTH_INGEST"
    assert "security.tls" in failure.message


async def test_ingest_that_is_away_is_waited_for(config: Config, resources: Resources, tmp_path: Path) -> None:
    config.worker.ingest = f"127.0.0.1:{free_ports(1)[0]}"
    async with files_of(config, tmp_path) as files:
        path = files.drop("a.manifest.json", _DOCUMENT)
        failure = await files.failed(path)
        assert (failure.code, failure.counts, failure.retry_after) == ("HANDLER_CONNECTION", False, 10.0)
        config.ingest.listen = config.worker.ingest
        async with Client.serving(config, resources) as client:

            async def submitted() -> bool:
                return isinstance(await files.do(path, job_id="at last"), Success)

            await eventually(submitted, 60)
            assert len(await client.jobs()) == 1


async def test_too_many_submits_wait_as_long_as_they_are_told(
    config: Config, resources: Resources, tmp_path: Path
) -> None:
    config.ingest.rate_limit_per_sec = 1
    async with _ingest(config, resources), files_of(config, tmp_path) as files:
        path = files.drop("a.manifest.json", _DOCUMENT)
        outcomes = [await files.do(path) for _ in range(20)]
    failure, *_ = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert (failure.code, failure.counts) == ("HANDLER_HTTP_429", False)
    assert failure.retry_after is not None
    assert 0 < failure.retry_after < 10


async def test_what_is_no_ingest_is_told_apart(config: Config, tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    config.worker.ingest = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, files_of(config, tmp_path) as files:
        failure = await files.failed(files.drop("a.manifest.json", _DOCUMENT))
    assert failure.code == "HANDLER_CONNECTION"


async def test_the_same_care_is_taken_of_manifests(files: Files) -> None:
    os.mkfifo(files.root / "pipe.manifest.json")
    assert (await files.failed(files.root / "pipe.manifest.json")).code == "VALIDATION_FILE_KIND"
    (files.root / "out.manifest.json").symlink_to("/etc/passwd")
    assert (await files.failed(files.root / "out.manifest.json")).code == "VALIDATION_FILE_OUTSIDE"
    assert (await files.failed(files.root / "none.manifest.json")).code == "VALIDATION_FILE_MISSING"
