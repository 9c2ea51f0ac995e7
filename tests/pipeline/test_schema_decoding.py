"""Entries into rows: what protobuf says of the bytes, whichever decoder has read them, and nothing lost beside them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import JobType
from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, HttpHeader, JobLog, JobStatus, QueuedTask
from fetchbox.operator.v1.job_pb2 import Job
from flows.model.codec import canonical, fields
from ingest_svc.tasks import stock_tasks
from kernel.handlers import DefaultHandler, Manifest, Resource
from kernel.queue.streams import publications
from kernel.redis import keys
from pipeline.schema import fast, generic, messages
from pipeline.schema.decoding import decode
from pipeline.schema.rows import Row
from pipeline.tables import DLQ, FLOWS, LOGS, STATUS, TABLES, TASKS
from tests.examples import most
from tests.pipeline import schema_rig as rig

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RUN = {"flow_id": "f1", "flow_name": "news", "tenant": "acme"}
TIMELINE = keys.flow_timeline(keys.run("acme", "f1"))
START = b"\x2a\x06\x0a\x01a\x12\x01"
"""How an entry with the key `a` of `JobLog.fields` begins: its value, of one byte, follows."""

GOOD = (JobStatus(job_id="j").SerializeToString(), b"\x98\x06\x05")
BAD = (b"\xff", b"\x0a\x05a")

TASK = DownloadTask(
    job_id="j1",
    job_type="default",
    resource_id="r/1 ä",
    url="https://h/a",
    headers=[HttpHeader(name="accept", value="*/*"), HttpHeader(name="x-empty")],
    proxy_hint={"primary_pool": "eu", "fallbacks": ["us", ""]},
    storage_hint={"key_prefix": "a/", "metadata": {"b": "c", "a": "d"}},
    attributes={"tags": {"x": "y"}, "extra": b"\x00\xff"},
    attempt=2,
    resources_total=3,
    resource_index=2**32 - 1,
)
USUAL = (
    TASK,
    JobStatus(job_id="j1", state="JOB_STATE_PARTIAL", log_offset=1764374400000 << 20, timestamp_ms=1764374400000),
    JobLog(job_id="j1", level="LOG_LEVEL_WARN", fields={"outcome": "retry", "code": "HTTP_503", "attempt": "1"}),
    DeadLetterTask(task=TASK, failure_code="HTTP_404", attempts=3, failed_at_ms=1764374400000, id="j1/r1/0"),
    DeadLetterTask(queued_task={"job_id": "j2", "task": "chat", "payload": b"{}"}, undecodable=b"\xff"),
    FLOWS.message(id="1-0", stream="nq:flow:f", ts="", kind="flow.start", data=b"{}", meta=b"{}", v=1),
)


def entry(payload: bytes, entry_id: str = "1764374400000-0", **more: bytes) -> Row:
    return Row(3, entry_id, {"payload": payload, **more})


def only(table, row: Row) -> dict:
    decoded = decode(table, [row])
    assert not decoded.quarantined
    return decoded.batch.to_pylist()[0]


@settings(max_examples=most(100), deadline=None)
@given(data=st.data(), kind=st.sampled_from(rig.KINDS))
def test_both_decoders_say_the_same_of_any_bytes(data, kind):
    payloads = data.draw(st.lists(rig.payloads(kind), min_size=1, max_size=6))
    expected, refused = generic.decode(kind, payloads)
    rows, errors = messages.decode(kind, payloads)
    assert rig.in_order(rows) == rig.in_order(expected)
    assert rows.schema == expected.schema
    assert errors == refused


@settings(max_examples=most(60), deadline=None)
@given(data=st.data(), kind=st.sampled_from(rig.KINDS))
def test_a_row_holds_all_that_its_message_held(data, kind):
    sent = data.draw(st.lists(rig.messages(kind, valid=True), min_size=1, max_size=4))
    rows, errors = messages.decode(kind, [message.SerializeToString() for message in sent])
    assert not errors
    assert [rig.rebuilt(kind, row) for row in rows.to_pylist()] == sent


@pytest.mark.parametrize("message", USUAL, ids=lambda message: message.DESCRIPTOR.name)
def test_messages_as_protobuf_writes_them_are_not_in_doubt(message):
    assert fast.decode(type(message), [message.SerializeToString()])[1] == []


def test_messages_as_our_services_put_them_together_are_not_in_doubt():
    resources = [Resource("r1", "https://h/1", {"Accept": "a/b"}, {"tag": "x"}), Resource("r2", "https://h/2", {}, {})]
    job_type = JobType(default_headers={"user-agent": "us"}, proxy={"primary": "eu"}, storage={"key_prefix": "p/"})
    view = Manifest("job", "gallery", tuple(resources), job_type, "tenant", "a" * 32, "s3://bucket/key")
    assert fast.decode(DownloadTask, stock_tasks(DefaultHandler({}), view))[1] == []
    tenants = ("", "acme")
    rest = JobStatus(job_id="j", resources_failed=1, last_error_code="HTTP_404", log_offset=1, revision=2)
    statuses = [publications.common_status("chat", tenant, "running") + rest.SerializeToString() for tenant in tenants]
    assert fast.decode(JobStatus, statuses)[1] == []
    tasks = (TASK, QueuedTask(job_id="j", task="chat", trace_id="b" * 32))
    lines = [publications.log_line(task, 3, "put off", 1764374400000, {"outcome": "retry"}) for task in tasks]
    lines += [publications.completed_line(task, 1764374400000, 1) for task in tasks]
    assert fast.decode(JobLog, lines)[1] == []


@settings(max_examples=most(25), deadline=None)
@given(st.lists(st.sampled_from([*GOOD, *BAD, None]), max_size=150))
def test_entries_that_are_no_messages_cost_the_others_nothing(payloads):
    rows = [Row(1, f"{n}-0", {} if payload is None else {"payload": payload}) for n, payload in enumerate(payloads)]
    good = [row for row in rows if row.fields.get("payload") in GOOD]
    decoded = decode(STATUS, rows)
    assert decoded.batch["entry_id"].to_pylist() == [row.id for row in good]
    assert [refused.row for refused in decoded.quarantined] == [row for row in rows if row not in good]
    assert all(refused.error for refused in decoded.quarantined)


def test_one_entry_that_is_no_message_is_found_among_many():
    payloads = [JobStatus(job_id=f"j{n}", revision=n).SerializeToString() for n in range(5000)]
    payloads[3210] = b"\x0a\x7f"
    decoded = decode(STATUS, [entry(payload, f"{n}-0") for n, payload in enumerate(payloads)])
    assert [refused.row.id for refused in decoded.quarantined] == ["3210-0"]
    assert decoded.quarantined[0].row.fields == {"payload": b"\x0a\x7f"}
    assert decoded.batch["revision"].to_pylist() == [n for n in range(5000) if n != 3210]


@pytest.mark.parametrize(
    ("payload", "held"),
    [
        (START + b"1" + START + b"2", [("a", "2")]),  # protobuf: the last one counts
        (b"\x2a\x03\x0a\x01a", [("a", "")]),
        (b"", []),
    ],
    ids=["twice", "without a value", "none"],
)
def test_a_map_is_what_protobuf_makes_of_it(payload, held):
    assert only(LOGS, entry(payload))["fields"] == held == list(JobLog.FromString(payload).fields.items())


@pytest.mark.parametrize(
    ("number", "name"), [(4, "JOB_STATE_COMPLETED"), (99, "99"), (-1, "-1"), (0, "JOB_STATE_UNKNOWN")]
)
def test_states_have_names_and_unknown_ones_their_number(number, name):
    assert only(STATUS, entry(JobStatus(state=number).SerializeToString()))["state"] == name


def test_a_number_that_an_int64_does_not_hold_makes_no_row():
    sent = [entry(JobStatus(timestamp_ms=2**63 - 1 + n).SerializeToString(), f"{n}-0") for n in range(2)]
    decoded = decode(STATUS, sent)
    assert decoded.batch["timestamp_ms"].to_pylist() == [2**63 - 1]
    assert [refused.row for refused in decoded.quarantined] == sent[1:]
    assert "timestamp_ms is 9223372036854775808" in decoded.quarantined[0].error


def test_timestamps_are_exact_and_those_outside_the_years_1_to_9999_make_no_row():
    sent = [Job() for _ in range(4)]
    for job, seconds in zip(sent, (253402300799, 253402300800, 2**62, -62135596800), strict=True):
        job.created_at.seconds = seconds
    rows, errors = messages.decode(Job, [job.SerializeToString() for job in sent])
    moments = [datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
    assert rows["created_at"].to_pylist() == moments
    assert list(errors) == [1, 2]


def test_what_is_absent_is_null_only_where_that_is_known():
    row = only(DLQ, entry(DeadLetterTask(queued_task={}).SerializeToString()))
    assert row["task"] is None
    assert row["queued_task"]["payload"] == b""
    assert row["failure_code"] == row["id"] == ""
    assert row["attempts"] == 0


@pytest.mark.parametrize(
    ("payload", "because"),
    [
        (b"\x0a\x01\xff", "DecodeError"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "DecodeError"),  # ptars panics at such a length
        (b"\x88\x80\x80\x80\x10\x01", "DecodeError"),  # and reads over such a tag
    ],
    ids=["no UTF-8", "length", "tag"],
)
def test_what_protobuf_does_not_read_is_no_row(payload, because):
    decoded = decode(LOGS, [entry(payload)])
    assert decoded.batch.num_rows == 0
    assert because in decoded.quarantined[0].error


@pytest.mark.parametrize(
    ("traceparent", "shown"),
    [
        (TRACE.encode(), TRACE),
        (b"", None),
        (b"\xff", None),
        (TRACE.encode() + b"\n", None),
        (TRACE.upper().encode(), None),
    ],
    ids=["valid", "empty", "bytes", "line", "upper"],
)
def test_an_entry_has_its_place_and_trace(traceparent, shown):
    row = only(TASKS, entry(b"", "1764374400123-7", traceparent=traceparent, retries=b"\xff", payload2=b"x"))
    assert list(row.items())[:4] == [
        ("entry_partition", 3),
        ("entry_id", "1764374400123-7"),
        ("entry_time", datetime(2025, 11, 29, 0, 0, 0, 123000, UTC)),
        ("traceparent", shown),
    ]
    assert not row.keys() & {"retries", "payload2", "payload"}


def test_an_id_whose_time_no_timestamp_has_is_kept_without_it():
    sent = [entry(b"", entry_id) for entry_id in ("253402300799999-1", "253402300800000-0", f"{2**64 - 1}-{2**64 - 1}")]
    times = decode(LOGS, sent).batch["entry_time"].to_pylist()
    assert times == [datetime(9999, 12, 31, 23, 59, 59, 999000, UTC), None, None]


def test_an_entry_without_a_payload_is_no_row():
    decoded = decode(TASKS, [Row(0, "1-0", {"traceparent": b""})])
    assert [refused.error for refused in decoded.quarantined] == ["the entry has no field payload"]


def test_no_entries_make_no_rows():
    for table in TABLES:
        decoded = decode(table, [])
        assert (decoded.batch.num_rows, decoded.quarantined) == (0, [])


@settings(max_examples=most(40), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["kind", "subject", "data", "meta", "v"]),
        st.sampled_from([b"", b"1", b"step.completed", b'{"a":1}', b"\xff", b"99999999999", b"x"]),
        min_size=3,
    )
)
def test_rows_of_a_timeline_are_its_events(held):
    event = canonical(TIMELINE, "5-1", held)
    decoded = decode(FLOWS, [Row(0, "5-1", held, RUN)])
    if event is None or b"\xff" in (event.data, event.meta):
        assert [refused.row.fields for refused in decoded.quarantined] == [held]
        return
    row = decoded.batch.to_pylist()[0]
    assert rig.rebuilt(FLOWS.message, row) == event
    assert {name: row[name] for name in RUN} == RUN


def test_the_event_of_a_row_is_the_one_that_was_stored():
    row = only(
        FLOWS, Row(0, "1764374400123-0", fields(FLOWS.message(kind="flow.start", data=b'{"flowName": "news"}')), RUN)
    )
    assert (row["kind"], row["data"], row["meta"], row["v"]) == ("flow.start", '{"flowName": "news"}', None, 1)
    assert (row["ts"], row["stream"]) == ("2025-11-29T00:00:00.123Z", TIMELINE)


@pytest.mark.parametrize("ms", [253_402_300_800_000, 10**17, 2**64 - 1])
def test_an_event_of_a_time_that_no_date_has_holds_up_no_other(ms):
    held = fields(FLOWS.message(kind="flow.start"))
    decoded = decode(FLOWS, [Row(0, f"{ms}-0", held, RUN), Row(0, "5-1", held, RUN)])
    assert decoded.batch["entry_id"].to_pylist() == ["5-1"]
    assert [refused.row.id for refused in decoded.quarantined] == [f"{ms}-0"]
    assert canonical(keys.flow_timeline("f1"), f"{ms}-0", held) is None


def test_rows_in_doubt_are_read_again_in_their_place():
    plain = [
        DownloadTask(job_id=f"j{n}", headers=[HttpHeader(name="a", value="b")]).SerializeToString() for n in range(9)
    ]
    mixed = [payload + b"\x98\x06\x05" if n % 3 == 1 else payload for n, payload in enumerate(plain)]
    mixed[4] += b"\x88\x80\x80\x80\x10\x01"
    assert fast.decode(DownloadTask, mixed)[1] == [1, 4, 7]
    decoded = decode(TASKS, [entry(payload, f"{n}-0") for n, payload in enumerate(mixed)])
    assert decoded.batch["job_id"].to_pylist() == [f"j{n}" for n in range(9) if n != 4]
    assert [refused.row.id for refused in decoded.quarantined] == ["4-0"]
