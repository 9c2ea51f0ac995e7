"""What an accepted submit leaves behind, before its answer is given."""

import gzip
import json
import re
from typing import Any
from uuid import UUID

import pytest

from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from fetchbox.jobs.jobs_pb2 import DownloadTask, JobState, LogLevel
from ingest_svc import tasks
from ingest_svc.manifest import read_members
from ingest_svc.strict_json import members
from kernel.config.loading import defaults
from kernel.ledger import Ledger
from kernel.log import offsets
from kernel.redis import keys
from tests.ingest.bad_bodies import LIMIT, sized, zstd
from tests.ingest.harness import GOOD, Client

METADATA = b'{"n":847458834325543643,"big":%s,"f":1.10,"e":[],"o":{},"u":"\\u00e9\\ud800"}' % (b"1" * 5000)
ATTRIBUTES = b'{"crawl_id":"1","crawled_at":"2024-05-01T10:00Z"}'
ODD = (
    b' {"manifest_version" :"v1",\n"metadata": %s,"resources":[{"id":"a/b","url":"HTTP://h/ b"}],"attributes":%s }\r\n'
)
ODD %= (METADATA, ATTRIBUTES)


@pytest.mark.req(
    "R001-1.02", "R001-1.42", "R001-1.44", "R001-1.45", "R001-1.46", "R001-1.54", "R001-1.55", "R001-1.56", "R001-1.57"
)
async def test_answer_names_the_job_and_its_stored_manifest(client: Client) -> None:
    answer = await client.submit()

    assert client.config.object_store.bucket == defaults().object_store.bucket
    assert UUID(answer.job_id).version == 7
    assert answer.manifest_key == f"s3://fetchbox/manifests/default/{answer.job_id}/metadata.json"
    assert answer.resource_count == 2
    assert await client.stored(answer.job_id) == json.dumps(GOOD).encode()


@pytest.mark.req("R001-1.15", "R001-1.35")
async def test_document_is_stored_byte_for_byte(client: Client) -> None:
    answer = await client.submit(ODD)

    assert await client.stored(answer.job_id) == ODD


@pytest.mark.req("R001-1.15", "R001-1.35")
def test_metadata_and_attributes_keep_their_bytes() -> None:
    draft = read_members(members(ODD, "document"))

    assert draft.manifest.metadata == METADATA
    assert draft.manifest.attributes == ATTRIBUTES


@pytest.mark.req("R001-1.47", "R001-1.48")
async def test_record_is_queued_with_reference_count_and_times(client: Client) -> None:
    answer = await client.submit(headers={"x-fetchbox-tenant": "crawler-a"})

    record = await Ledger(client.resources.redis, client.config).get(answer.job_id)
    assert record is not None
    assert (record.status, record.task, record.job_type) == ("queued", "fetch", "default")
    assert (record.resource_total, record.resource_completed, record.resource_failed) == (2, 0, 0)
    assert record.manifest_key == answer.manifest_key
    assert record.tenant == "crawler-a"
    now = await client.resources.redis.now_ms()
    assert now - 10_000 < record.created_ms == record.updated_ms <= now
    events = await client.resources.redis.commands.xrange(keys.job_events(answer.job_id))
    assert [fields[b"type"] for _, fields in events] == [b"queued"]


@pytest.mark.req("R000-2.14", "R000-2.17", "R000-4.01", "R000-4.02", "R001-1.50", "R001-1.27", "R001-1.31", "R001-1.32")
async def test_tasks_are_on_the_stream_when_the_answer_comes(client: Client) -> None:
    client.config.job_types["default"].default_headers.update({"User-Agent": "FetchBox", "referer": "none"})
    document = {
        "manifest_version": "v1",
        "resources": [
            {
                "id": "one",
                "url": "https://example.com/1",
                "headers": {"Referer": "https://example.com/", "X-A": "é"},
                "tags": {"content_type": "image/png", "checksum_hint": f"sha256:{'ab' * 32}", "k": "v"},
            },
            {"id": "two", "url": "https://example.com/2"},
        ],
    }
    answer = await client.submit(document, {"x-fetchbox-tenant": "t", "traceparent": f"00-{'a1' * 16}-{'b2' * 8}-01"})

    one, two = await client.tasks(answer.job_id)
    assert (one.resource_id, one.url, one.job_type, one.tenant) == ("one", "https://example.com/1", "default", "t")
    assert (one.resource_index, one.resources_total, two.resource_index, two.resources_total) == (1, 2, 2, 2)
    assert {header.name: header.value for header in one.headers} == {
        "user-agent": "FetchBox",
        "referer": "https://example.com/",
        "x-a": "é",
    }
    assert {header.name: header.value for header in two.headers} == {"user-agent": "FetchBox", "referer": "none"}
    assert one.attributes.mime_hint == "image/png"
    assert one.attributes.checksum_hint == f"sha256:{'ab' * 32}"
    assert dict(one.attributes.tags) == document["resources"][0]["tags"]  # type: ignore[index]
    assert one.manifest_key == answer.manifest_key
    assert one.trace_id == two.trace_id == "a1" * 16
    assert one.attempt == 0
    partition = keys.partition_of(answer.job_id, 8)
    assert await client.resources.redis.commands.xlen(keys.stream(keys.TASKS, partition)) == 2


@pytest.mark.req("R000-2.17")
@pytest.mark.parametrize("traceparent", [None, "none", f"00-{'0' * 32}-{'b2' * 8}-01"])
async def test_trace_id_is_32_hex_digits_or_absent(client: Client, traceparent: str | None) -> None:
    answer = await client.submit(headers={"traceparent": traceparent})

    assert all(re.fullmatch(r"([0-9a-f]{32})?", task.trace_id) for task in await client.tasks(answer.job_id))
    assert {task.trace_id for task in await client.tasks(answer.job_id)} != {"0" * 32}


@pytest.mark.req("R000-2.14", "R000-4.03", "R000-4.04")
async def test_first_status_is_queued_and_has_every_field_that_applies(client: Client) -> None:
    answer = await client.submit(headers={"x-fetchbox-tenant": "t"})

    (status,) = await client.statuses(answer.job_id)
    assert status.state == JobState.JOB_STATE_QUEUED
    assert (status.resources_total, status.resources_completed, status.resources_failed) == (2, 0, 0)
    assert (status.manifest_key, status.job_type, status.tenant) == (answer.manifest_key, "default", "t")
    assert min(status.revision, status.log_offset) >= 1
    stored = await client.resources.objects.head("fetchbox", f"manifests/default/{answer.job_id}/metadata.json")
    assert stored is not None
    assert stored.modified_ms <= status.timestamp_ms + 1000, "the clock of the object store counts seconds"


@pytest.mark.req("R000-1.16")
async def test_ingest_consumes_none_of_the_streams(client: Client) -> None:
    await client.submit()

    redis = client.resources.redis.commands
    groups = {
        topic: {
            group["name"]
            async for stream in redis.scan_iter(match=f"{keys.NAMESPACE}{topic}:*", _type="stream")
            for group in await redis.xinfo_groups(stream)
        }
        for topic in keys.TOPICS
    }
    assert groups[keys.TASKS] <= {b"workers"}
    assert groups[keys.STATUS] | groups[keys.LOGS] <= {b"operators"}
    assert groups[keys.DLQ] == set()


@pytest.mark.req("R001-1.08")
async def test_compressed_documents_are_stored_decompressed(client: Client) -> None:
    for coding, body in {
        "gzip": gzip.compress(ODD),
        "GZIP": gzip.compress(ODD[:50]) + gzip.compress(ODD[50:]),
        "zstd": zstd(ODD[:50]) + zstd(ODD[50:]),
        "identity": ODD,
    }.items():
        answer = await client.submit(body, {"content-encoding": coding})
        assert await client.stored(answer.job_id) == ODD


@pytest.mark.req("R001-1.37", "R001-1.38")
async def test_exactly_five_megabytes_pass(client: Client) -> None:
    document = sized(LIMIT)

    for body, coding in ((document, "identity"), (gzip.compress(document), "gzip"), (zstd(document), "zstd")):
        answer = await client.submit(body, {"content-encoding": coding})
        assert await client.stored(answer.job_id) == document


@pytest.mark.req("R001-1.19")
async def test_maximum_of_resources_is_configurable(client: Client) -> None:
    client.config.ingest.max_resources = 3
    entries = [{"id": str(n), "url": "http://h/"} for n in range(4)]

    assert (await client.submit({"manifest_version": "v1", "resources": entries[:3]})).resource_count == 3
    refusal = await client.refusal({"manifest_version": "v1", "resources": entries})
    assert (refusal.status, refusal.fields) == (400, ["resources"])


@pytest.mark.req("R001-1.18")
async def test_a_thousand_resources_pass(client: Client) -> None:
    entries = [{"id": f"resource {n}", "url": f"http://h/{n}"} for n in range(1000)]

    answer = await client.submit({"manifest_version": "v1", "resources": entries})

    found = await client.tasks(answer.job_id)
    assert answer.resource_count == len(found) == 1000
    assert [task.resource_id for task in found] == [entry["id"] for entry in entries]


@pytest.mark.req("R001-1.33")
async def test_metadata_attributes_headers_and_tags_may_be_absent(client: Client) -> None:
    answer = await client.submit({"manifest_version": "v1", "resources": [{"id": "a", "url": "http://h"}]})

    assert answer.resource_count == 1


async def test_attributes_are_free(client: Client) -> None:
    """No name, type, number or size of them is ours to refuse, within the limits of a document (issue 11, 23)."""
    attributes = {
        **{name: value for name in ("priority", "job_id", "headers", "", "a b", "é", "\u0000", "x" * 10_000)
           for value in ("low",)},
        **{f"n{number}": number for number in range(2000)},
        "null": None, "true": True, "list": [[], {}], "nested": {"tenant": 7, "a": {"b": {"c": [1.5, "x"]}}},
    }  # fmt: skip
    for given in (attributes, {}, {"priority": 10**30}, {"priority": ["high"]}, {"urgent": "${x}"}):
        document = {"manifest_version": "v1", "attributes": given, "resources": [{"id": "a", "url": "http://h"}]}
        assert (await client.submit(document)).resource_count == 1


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
@pytest.mark.req("R001-1.05")
async def test_json_content_types_are_accepted(client: Client, content_type: str) -> None:
    assert (await client.submit(headers={"content-type": content_type})).job_id


@pytest.mark.req("R001-1.32")
async def test_malformed_checksum_hint_is_accepted_with_a_warning_in_the_log(client: Client) -> None:
    hints = {"good": f"md5:{'0' * 32}", "short": "sha256:deadbeef", "odd": "crc32:00000000", "word": "deadbeef"}
    entries = [{"id": name, "url": "http://h/", "tags": {"checksum_hint": hint}} for name, hint in hints.items()]

    answer = await client.submit({"manifest_version": "v1", "resources": entries})

    lines = await client.logs(answer.job_id)
    assert [line.resource_id for line in lines] == ["short", "odd", "word"]
    assert {line.level for line in lines} == {LogLevel.LOG_LEVEL_WARN}
    record = await Ledger(client.resources.redis, client.config).get(answer.job_id)
    assert record is not None
    (entry,) = await client.resources.redis.commands.xrange(
        keys.stream(keys.LOGS, keys.partition_of(answer.job_id, 4)), count=1
    )
    assert record.log_offset < offsets.offset(entry[0].decode())


async def test_built_tasks_are_stored_beside_the_manifest(client: Client) -> None:
    answer = await client.submit()

    packed = await client.stored(answer.job_id, "tasks.binpb")
    assert packed is not None
    assert [DownloadTask.FromString(task) for task in tasks.unpack(packed)] == await client.tasks(answer.job_id)


async def test_typed_manifest_is_stored_in_canonical_json(client: Client) -> None:
    resource = Resource(
        id='a"\u2028',
        url="http://h/é",
        tags={"\ue000": "1", "\U00010000": "2", "a": "\x01/"},
        headers={"b": "1", "A": "2"},
    )
    manifest = Manifest(
        manifest_version="v1", metadata=b'{ "n": 847458834325543643 }', attributes=b"", resources=[resource]
    )
    answer = await client.stub.SubmitJob(SubmitJobRequest(job_type="default", manifest=manifest))

    stored = await client.stored(answer.job_id)
    assert (
        stored
        == (
            '{"attributes":{},"manifest_version":"v1","metadata":{ "n": 847458834325543643 },"resources":['
            '{"headers":{"A":"2","b":"1"},"id":"a\\"\u2028",'
            '"tags":{"a":"\\u0001/","\U00010000":"2","\ue000":"1"},"url":"http://h/é"}]}'
        ).encode()
    )
    manifest.attributes = b"{}"
    assert read_members(members(stored, "document")).manifest == manifest


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": b"[]"}, "metadata"),
        ({"metadata": b'{},"x":{}'}, "metadata"),
        ({"metadata": b"{"}, "metadata"),
        ({"attributes": b'{"a":1,"a":2}'}, "attributes.a"),
        ({"attributes": b"\xff"}, "attributes"),
        ({"manifest_version": "v2"}, "manifest_version"),
        ({"resources": [Resource(id="a", url="http://h:0/")]}, "resources[0].url"),
    ],
)
async def test_typed_manifests_keep_the_same_rules(client: Client, change: dict[str, Any], field: str) -> None:
    fields = {"manifest_version": "v1", "resources": [Resource(id="a", url="http://h/")], **change}
    request = SubmitJobRequest(job_type="default", manifest=Manifest(**fields))

    refusal = await client.refused(client.stub.SubmitJob(request))

    assert (refusal.status, refusal.fields) == (400, [field])


async def test_typed_manifest_beyond_five_megabytes_is_too_large(client: Client) -> None:
    metadata = b'{"pad":"%s"}' % (b"x" * LIMIT)
    manifest = Manifest(manifest_version="v1", metadata=metadata, resources=[Resource(id="a", url="http://h/")])

    refusal = await client.refused(client.stub.SubmitJob(SubmitJobRequest(job_type="default", manifest=manifest)))

    assert (refusal.status, refusal.reason) == (413, "PAYLOAD_TOO_LARGE")


async def test_submit_without_a_document_names_the_source(client: Client) -> None:
    refusal = await client.refused(client.stub.SubmitJob(SubmitJobRequest(job_type="default")))

    assert (refusal.status, refusal.fields) == (400, ["source"])
