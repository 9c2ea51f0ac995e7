"""The handler contract of seed 001 section 3: resolution, options, hooks and what the default builds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.errors.v1 import errors_pb2
from fetchbox.ingest.v1 import manifest_pb2
from kernel.config.loading import ConfigError, defaults
from kernel.errors import FetchboxError
from kernel.handlers import DefaultHandler, HandlerRegistry, JobHandler, Manifest, plan_tasks
from tests.worker.custom_handlers import Gallery

HERE = "tests.worker.custom_handlers"


def configured(handler: str, **settings: object) -> tuple[Config, JobHandler]:
    config = defaults()
    config.job_types["gallery"].CopyFrom(JobType(handler=handler, **settings))  # type: ignore[arg-type]
    handler_object = HandlerRegistry(config).get("gallery")
    assert handler_object is not None
    return config, handler_object


def manifest(
    config: Config, *resources: manifest_pb2.Resource, attributes: bytes = b"", metadata: bytes = b""
) -> Manifest:
    message = manifest_pb2.Manifest(
        manifest_version="v1", resources=resources, attributes=attributes, metadata=metadata
    )
    return Manifest.of(
        message,
        job_id="job-1",
        job_type="gallery",
        settings=config.job_types["gallery"],
        tenant="crawler-a",
        trace_id="a" * 32,
        manifest_key="s3://fetchbox/manifests/gallery/job-1/metadata.json",
    )


def resource(name: str = "r1", **fields: object) -> manifest_pb2.Resource:
    return manifest_pb2.Resource(id=name, url=f"https://cdn.example.com/{name}", **fields)  # type: ignore[arg-type]


@pytest.mark.req("R001-3.02", "R001-3.22")
@pytest.mark.parametrize("path", ["", "default", "kernel.handlers:DefaultHandler", "kernel.handlers.DefaultHandler"])
def test_a_handler_is_named_by_entry_point_or_by_path(path: str) -> None:
    _, handler = configured(path)
    assert type(handler) is DefaultHandler


@pytest.mark.req("R001-3.03")
@pytest.mark.parametrize(
    "path",
    ["nobody", "no.such.module:Handler", f"{HERE}:Absent", f"{HERE}:NoHandler", f"{HERE}:NeedsOption", "json:dumps"],
)
def test_a_handler_that_cannot_be_had_ends_the_start_and_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=r"job_types\.gallery\.handler") as caught:
        configured(path)
    assert path in str(caught.value)


@pytest.mark.req("R001-3.10", "R001-3.11")
def test_options_reach_the_handler_with_their_json_types() -> None:
    options = {
        "max_parallel_downloads": 8,
        "ratio": 0.5,
        "on": True,
        "none": None,
        "big": 847458834325543643 << 64,
        "list": [1],
    }
    _, handler = configured(f"{HERE}:Gallery", options=json.dumps(options).encode())
    assert handler.options == options
    assert type(handler.options["max_parallel_downloads"]) is int
    assert type(handler.options["big"]) is int


@pytest.mark.req("R001-3.12", "R001-3.13", "R001-3.16", "R001-3.18", "R001-3.23", "R001-1.29", "R001-1.31", "R001-1.32")
@pytest.mark.req("R001-3.05", "R001-3.06", "R001-3.08", "R001-3.09")
async def test_the_default_handler_makes_one_task_a_resource_as_submitted() -> None:
    config, handler = configured("default")
    config.job_types["gallery"].proxy.primary = "eu"
    config.job_types["gallery"].proxy.fallbacks.extend(["global", "emergency"])
    config.job_types["gallery"].storage.bucket = "fetchbox-gallery"
    config.job_types["gallery"].storage.key_prefix = "gallery/"
    tags = {"content_type": "image/jpeg", "checksum_hint": "sha256:deadbeef", "colour": "red"}
    first, second = await plan_tasks(handler, manifest(config, resource("a", tags=tags), resource("b")))
    assert (first.resource_id, first.url) == ("a", "https://cdn.example.com/a")
    assert dict(first.attributes.tags) == tags
    assert first.attributes.mime_hint == "image/jpeg"
    assert first.attributes.checksum_hint == "sha256:deadbeef"
    assert first.proxy_hint.primary_pool == "eu"
    assert list(first.proxy_hint.fallbacks) == ["global", "emergency"]
    assert first.storage_hint.bucket == "fetchbox-gallery"
    assert first.storage_hint.key_prefix == "gallery/job-1/"
    assert [task.resource_index for task in (first, second)] == [1, 2]
    for task in (first, second):
        assert (task.job_id, task.job_type, task.tenant, task.trace_id) == ("job-1", "gallery", "crawler-a", "a" * 32)
        assert task.manifest_key.endswith("/metadata.json")
        assert task.resources_total == 2
        assert task.attempt == 0


NAMES = st.from_regex(r"[A-Za-z][A-Za-z-]{0,8}", fullmatch=True)
HEADERS = st.dictionaries(NAMES, st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8), max_size=6)


@pytest.mark.req("R001-1.27", "R001-3.04", "R001-3.17", "R000-2.16")
@given(HEADERS, HEADERS)
async def test_headers_of_the_manifest_win_over_those_of_the_job_type_whatever_their_case(
    default: dict[str, str], own: dict[str, str]
) -> None:
    config, handler = configured("default", default_headers=default)
    (task,) = await plan_tasks(handler, manifest(config, resource(headers=own)))
    names = [header.name for header in task.headers]
    assert len(names) == len(set(names))
    lowered = {name.lower() for name in (*default, *own)}
    assert set(names) == lowered
    for header in task.headers:
        source = own if header.name in {name.lower() for name in own} else default
        assert header.value in {value for name, value in source.items() if name.lower() == header.name}


@pytest.mark.req("R001-1.35", "R001-3.20")
async def test_attributes_and_metadata_reach_the_handler_unchanged() -> None:
    config, handler = configured(f"{HERE}:Gallery")
    attributes = b'{"crawl_id": 847458834325543643, "crawled_at": "2024-05-01T10:00Z", "priority": "normal"}'
    await plan_tasks(handler, manifest(config, resource(), attributes=attributes, metadata=b'{"a": []}'))
    assert isinstance(handler, Gallery)
    (seen,) = handler.seen
    assert seen.attributes_json == attributes
    assert seen.attributes["crawl_id"] == 847458834325543643
    assert seen.attributes["crawled_at"] == "2024-05-01T10:00Z"
    assert (seen.metadata_json, seen.metadata) == (b'{"a": []}', {"a": []})


@pytest.mark.req("R001-3.19", "R001-1.49")
async def test_the_storage_hook_sets_bucket_key_and_metadata_of_each_resource() -> None:
    config, handler = configured(f"{HERE}:Gallery", options=b'{"bucket": "albums"}')
    tasks = await plan_tasks(handler, manifest(config, resource("a"), resource("b"), attributes=b'{"crawl_id": "7"}'))
    hints = [task.storage_hint for task in tasks]
    assert [hint.key for hint in hints] == ["gallery/job-1/a.img", "gallery/job-1/b.img"]
    assert {hint.bucket for hint in hints} == {"albums"}
    assert [dict(hint.metadata) for hint in hints] == [{"album": "7"}] * 2


async def test_a_synchronous_hook_of_a_deployment_does_not_block_the_service() -> None:
    config, handler = configured(f"{HERE}:Gallery")
    (task,) = await plan_tasks(handler, manifest(config, resource()))
    assert task.attributes.tags["built_in"] != "MainThread"


@pytest.mark.req("R001-3.15")
@pytest.mark.parametrize("hook", ["prepare_manifest", "build_tasks"])
async def test_a_failing_hook_is_reported_without_its_text(hook: str) -> None:
    config, handler = configured(f"{HERE}:Broken", options=json.dumps({"fails_in": hook}).encode())
    with pytest.raises(FetchboxError, match="the log has the details under the error id") as caught:
        await plan_tasks(handler, manifest(config, resource()))
    assert "on purpose" not in caught.value.message
    assert caught.value.reason == errors_pb2.REASON_INTERNAL_ERROR
    assert caught.value.metadata["failure_code"] == "HANDLER_ERROR"
    assert "gallery" in caught.value.message


class Careless(DefaultHandler):
    """Builds tasks that cannot be counted."""

    def build_tasks(self, prepared):  # type: ignore[no-untyped-def]
        tasks = super().build_tasks(prepared)
        return {"none": [], "twice": tasks * 2}[self.options["how"]]


@pytest.mark.parametrize("how", ["none", "twice"])
async def test_tasks_that_settlement_could_not_count_are_refused(how: str) -> None:
    config, _ = configured("default")
    with pytest.raises(FetchboxError, match="distinct resource ids"):
        await plan_tasks(Careless({"how": how}), manifest(config, resource()))
