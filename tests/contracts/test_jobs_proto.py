"""The messages on the streams have exactly the names and numbers of seed 000 section 2."""

import subprocess
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from fetchbox.jobs import jobs_pb2

_ROOT = Path(__file__).parents[2]
_FILE = _ROOT / "proto" / "fetchbox" / "jobs" / "jobs.proto"

_HTTP_HEADER = {1: ("string", "name"), 2: ("string", "value")}
_STORAGE_HINT = {1: ("string", "bucket"), 2: ("string", "key_prefix"), 3: ("map<string, string>", "metadata")}
_PROXY_HINT = {1: ("string", "primary_pool"), 2: ("repeated string", "fallbacks")}
_TASK_ATTRIBUTES = {
    1: ("map<string, string>", "tags"),
    2: ("string", "checksum_hint"),
    3: ("string", "mime_hint"),
    4: ("bytes", "extra"),
}
_DOWNLOAD_TASK = {
    1: ("string", "job_id"),
    2: ("string", "job_type"),
    3: ("string", "resource_id"),
    4: ("string", "url"),
    5: ("repeated HttpHeader", "headers"),
    6: ("ProxyHint", "proxy_hint"),
    7: ("StorageHint", "storage_hint"),
    8: ("TaskAttributes", "attributes"),
    9: ("string", "manifest_key"),
    10: ("uint32", "attempt"),
    11: ("string", "tenant"),
    12: ("string", "trace_id"),
}
_JOB_STATUS = {
    1: ("string", "job_id"),
    2: ("string", "job_type"),
    3: ("JobState", "state"),
    4: ("uint32", "resources_total"),
    5: ("uint32", "resources_completed"),
    6: ("uint32", "resources_failed"),
    7: ("string", "manifest_key"),
    8: ("string", "tenant"),
    9: ("string", "last_error_code"),
    10: ("string", "last_error_message"),
    11: ("uint64", "log_offset"),
    12: ("uint64", "timestamp_ms"),
}
_JOB_LOG = {
    1: ("string", "job_id"),
    2: ("string", "resource_id"),
    3: ("LogLevel", "level"),
    4: ("string", "message"),
    5: ("map<string, string>", "fields"),
    6: ("uint64", "timestamp_ms"),
    7: ("string", "trace_id"),
}
_DEAD_LETTER_TASK = {
    1: ("DownloadTask", "task"),
    2: ("string", "failure_code"),
    3: ("string", "failure_message"),
    4: ("uint32", "attempts"),
    5: ("uint64", "failed_at_ms"),
}
_JOB_STATE = ["UNKNOWN", "QUEUED", "IN_PROGRESS", "PARTIAL", "COMPLETED", "FAILED"]
_LOG_LEVEL = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"]

_ALL: list[Message] = [
    jobs_pb2.HttpHeader(name="referer", value="https://example.com/"),
    jobs_pb2.StorageHint(bucket="b", key_prefix="p/", metadata={"a": "b"}),
    jobs_pb2.ProxyHint(primary_pool="eu", fallbacks=["global"]),
    jobs_pb2.TaskAttributes(tags={"a": "b"}, checksum_hint="sha256:00", mime_hint="image/jpeg", extra=b"\x00\xff"),
    jobs_pb2.DownloadTask(job_id="j", headers=[jobs_pb2.HttpHeader(name="a", value="b")], attempt=3),
    jobs_pb2.JobStatus(job_id="j", state=jobs_pb2.JOB_STATE_PARTIAL, log_offset=(1 << 64) - 1, timestamp_ms=1 << 53),
    jobs_pb2.JobLog(job_id="j", level=jobs_pb2.LOG_LEVEL_WARN, fields={"k": "v"}, timestamp_ms=1_700_000_000_000),
    jobs_pb2.DeadLetterTask(task=jobs_pb2.DownloadTask(job_id="j"), failed_at_ms=1 << 63),
]

_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return f"map<{_kind(key)}, {_kind(value)}>"
    named = field.message_type or field.enum_type
    kind = named.name if named is not None else _SCALARS[field.type]
    return f"repeated {kind}" if field.is_repeated else kind


def _seeded(descriptor: Descriptor, fields: dict[int, tuple[str, str]]) -> None:
    """The fields of the seed are as it says; what was added has numbers and names that the seed does not use."""
    by_number = {field.number: (_kind(field), field.name) for field in descriptor.fields}
    assert {number: by_number[number] for number in fields} == fields
    added = {number: field for number, field in by_number.items() if number not in fields}
    assert all(number > max(fields) for number in added)


def _values(enum: EnumDescriptor, prefix: str, names: list[str]) -> None:
    assert [(value.name, value.number) for value in enum.values] == [(f"{prefix}{n}", i) for i, n in enumerate(names)]


@pytest.mark.req("R000-2.01", "R000-2.02")
def test_one_proto3_file_in_the_package_of_the_seed() -> None:
    source = _FILE.read_text()
    assert 'syntax = "proto3";' in source
    assert "package fetchbox.jobs;" in source
    assert jobs_pb2.DESCRIPTOR.name == "fetchbox/jobs/jobs.proto"
    assert jobs_pb2.DESCRIPTOR.package == "fetchbox.jobs"
    names = [
        "HttpHeader",
        "StorageHint",
        "ProxyHint",
        "TaskAttributes",
        "DownloadTask",
        "JobStatus",
        "JobLog",
        "DeadLetterTask",
    ]
    assert set(names) <= set(jobs_pb2.DESCRIPTOR.message_types_by_name)
    for other in (_ROOT / "proto").rglob("*.proto"):
        if other != _FILE:
            assert "package fetchbox.jobs;" not in other.read_text()


@pytest.mark.req("R000-2.03")
def test_http_header() -> None:
    _seeded(jobs_pb2.HttpHeader.DESCRIPTOR, _HTTP_HEADER)


@pytest.mark.req("R000-2.04")
def test_storage_hint() -> None:
    _seeded(jobs_pb2.StorageHint.DESCRIPTOR, _STORAGE_HINT)


@pytest.mark.req("R000-2.05")
def test_proxy_hint() -> None:
    _seeded(jobs_pb2.ProxyHint.DESCRIPTOR, _PROXY_HINT)


@pytest.mark.req("R000-2.06")
def test_task_attributes() -> None:
    _seeded(jobs_pb2.TaskAttributes.DESCRIPTOR, _TASK_ATTRIBUTES)


@pytest.mark.req("R000-2.07")
def test_extra_is_optional_and_opaque() -> None:
    blob = bytes(range(256))
    task = jobs_pb2.DownloadTask(job_id="j", attributes=jobs_pb2.TaskAttributes(extra=blob))
    assert jobs_pb2.DownloadTask.FromString(task.SerializeToString()).attributes.extra == blob
    assert (
        jobs_pb2.DownloadTask.FromString(jobs_pb2.DownloadTask(job_id="j").SerializeToString()).attributes.extra == b""
    )


@pytest.mark.req("R000-2.08")
def test_download_task() -> None:
    _seeded(jobs_pb2.DownloadTask.DESCRIPTOR, _DOWNLOAD_TASK)


@pytest.mark.req("R000-2.09")
def test_job_state() -> None:
    _values(jobs_pb2.JobState.DESCRIPTOR, "JOB_STATE_", _JOB_STATE)


@pytest.mark.req("R000-2.10")
def test_job_status() -> None:
    _seeded(jobs_pb2.JobStatus.DESCRIPTOR, _JOB_STATUS)


@pytest.mark.req("R000-2.11")
def test_log_level() -> None:
    _values(jobs_pb2.LogLevel.DESCRIPTOR, "LOG_LEVEL_", _LOG_LEVEL)


@pytest.mark.req("R000-2.12")
def test_job_log() -> None:
    _seeded(jobs_pb2.JobLog.DESCRIPTOR, _JOB_LOG)


@pytest.mark.req("R000-2.13")
def test_dead_letter_task() -> None:
    _seeded(jobs_pb2.DeadLetterTask.DESCRIPTOR, _DEAD_LETTER_TASK)


@pytest.mark.req("R000-2.15")
def test_absent_fields_are_read_as_defaults() -> None:
    for message in _ALL:
        read = type(message).FromString(b"")
        assert read == type(message)()
    newer = jobs_pb2.JobStatus.FromString(jobs_pb2.JobStatus(job_id="j").SerializeToString() + b"\xfa\x3f\x01x")
    assert newer.job_id == "j"


@pytest.mark.req("R000-2.18")
@pytest.mark.parametrize("message", _ALL, ids=lambda message: type(message).__name__)
def test_json_has_the_names_of_the_seed_and_comes_back(message: Message) -> None:
    shown = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    assert set(shown) <= {field.name for field in message.DESCRIPTOR.fields}
    assert json_format.Parse(json_format.MessageToJson(message), type(message)()) == message


@pytest.mark.req("R000-2.18")
def test_uint64_prints_as_a_string_and_both_forms_are_read() -> None:
    status = jobs_pb2.JobStatus(log_offset=(1 << 64) - 1, timestamp_ms=5)
    shown = json_format.MessageToDict(status)
    assert shown["log_offset"] == "18446744073709551615"
    assert json_format.ParseDict({"log_offset": 7, "timestamp_ms": "5"}, jobs_pb2.JobStatus()).log_offset == 7


@pytest.mark.req("R000-goal.01")
def test_no_second_schema_of_the_stream_messages() -> None:
    """Nothing but the generated stubs defines a class with the name of a stream message."""
    names = "|".join(message.DESCRIPTOR.name for message in _ALL)
    packages = ["kernel", "flows", "ingest_svc", "worker_svc", "operator_svc", "gateway", "cli"]
    found = subprocess.run(
        ["grep", "-rnE", rf"class ({names})\b", "--include=*.py", *packages],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""
