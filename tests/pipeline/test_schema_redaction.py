"""No column shows a secret, and what is no secret is there as it was."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fetchbox.jobs.jobs_pb2 import DeadLetterTask, DownloadTask, JobLog, JobStatus
from flows.model.codec import fields
from kernel import redaction
from pipeline.lake.segments import encode
from pipeline.schema import cells
from pipeline.schema.decoding import decode
from pipeline.schema.rows import Row
from pipeline.tables import DLQ, FLOWS, LOGS, STATUS, TASKS, Table
from tests.examples import most
from tests.pipeline import schema_rig as rig

SECRET = "s3cr3tvalue"
SIGNED = (
    f"https://b.s3.amazonaws.com/a.jpg?X-Amz-Date=20261128&X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}%2Faws4"
)
HIDDEN = "https://b.s3.amazonaws.com/a.jpg?X-Amz-Date=20261128&X-Amz-Signature=REDACTED&X-Amz-Credential=REDACTED"
PIECES = [
    "http://", "HTTPS://", "s3://", "h", "h:8", "[::1]", "u:p@", "/", "/a=b", "//", "?", "&", "#", "=", ";", "%3d",
    "%40", "%2F%2f", "sig", "%73ig", "token", "x", "page", "api_key", "code", "authorization", "Cookie: a", "bearer ",
    "Bearer abcdefgh12", " ", "\n", "\x1c", "\u212a", "\u017f", "coo\u212aie=", "ba\u017fic abcdefgh", "é", '"', "'",
    "bas\u0131c abcdefgh", "author\u0130zation:", "<", "+",
    "gsk_aaaaaaaaaaaaaaaa1", "ToKeN", "pw", "%3D", "\\/", ":\\/\\/", "u:Passw0rd@h", ":80",
    "api key", "<pw a>", "name='pw'", "value='x'", ">", ":", "@", "cf__bm", "_wpnonce",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
TASK = DownloadTask(
    job_id="j",
    url=SIGNED,
    headers=[
        {"name": "authorization", "value": f"Bearer {SECRET}"},
        {"name": "X-Api-Key", "value": SECRET},
        {"name": "accept", "value": "*/*"},
        {"name": "referer", "value": SIGNED},
    ],
    storage_hint={"metadata": {"source": SIGNED, "session-token": SECRET}},
    attributes={"tags": {"where": f"//x {SIGNED}", "colour": "blue"}, "extra": b"\x00"},
    manifest_key="s3://fetchbox/manifests/j.json",
)


def row_of(table: Table, payload: bytes) -> dict:
    decoded = decode(table, [Row(0, "1764374400000-0", {"payload": payload})])
    assert SECRET.encode() not in encode(decoded.batch, {})
    return decoded.batch.to_pylist()[0]


@settings(max_examples=most(300), deadline=None)
@example(
    [
        "http://h/p?a=1&sig=2",
        "http://h/p?to=http://u:p@h",
        "http://h/p?to=//u:p%40h",
        "http://h/p?a=%3d",
        "http://h/?sig=",
        "s3:///a",
    ]
)
@example(["http://h?sig=authorization=x", "http://h/?x=1?sig=2", "http://h/a&sig=1?b=2", "http://h/?%73ig=1&sig==&sig"])
@given(st.lists(TEXTS | st.none(), max_size=8))
def test_columns_are_redacted_as_the_kernel_redacts_each_cell(texts):
    column = pa.array(texts, pa.string())
    assert cells.texts(column).to_pylist() == [None if text is None else redaction.text(text) for text in texts]
    assert cells.urls(column).to_pylist() == [None if text is None else redaction.url(text) for text in texts]


@settings(max_examples=most(300), deadline=None)
@given(TEXTS)
def test_the_kernel_changes_no_text_without_one_of_its_marks(text):
    if not redaction.is_marked(text):
        assert redaction.text(text) == text


@settings(max_examples=most(60), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["final_url", "host", "api_key", "Cookie"]), TEXTS), max_size=4), TEXTS)
def test_log_lines_are_shown_as_operators_see_them(facts, message):
    sent = [JobLog(message=message, fields=held).SerializeToString() for held in facts]
    rows = decode(LOGS, [Row(0, f"{n}-0", {"payload": payload}) for n, payload in enumerate(sent)]).batch.to_pylist()
    assert [dict(row["fields"]) for row in rows] == [redaction.fields(held) for held in facts]
    assert {row["message"] for row in rows} <= {redaction.text(message)}


def test_a_signed_url_in_the_fields_of_a_log_line_is_hidden():
    row = row_of(LOGS, JobLog(message=f"got {SIGNED}", fields={"final_url": SIGNED, "size": "7"}).SerializeToString())
    assert dict(row["fields"]) == {"final_url": HIDDEN, "size": "7"}
    assert row["message"] == f"got {HIDDEN}"


@pytest.mark.parametrize("dead", [False, True], ids=["task", "dead letter"])
def test_a_task_is_shown_without_its_credentials(dead):
    letter = DeadLetterTask(task=TASK, failure_message=f"Authorization: {SECRET}", undecodable=b"\xff")
    row = row_of(DLQ, letter.SerializeToString()) if dead else row_of(TASKS, TASK.SerializeToString())
    task = row["task"] if dead else row
    assert task["url"] == HIDDEN
    assert [header["value"] for header in task["headers"]] == ["REDACTED", "REDACTED", "*/*", HIDDEN]
    assert dict(task["storage_hint"]["metadata"]) == {"source": HIDDEN, "session-token": "REDACTED"}
    assert dict(task["attributes"]["tags"]) == {"where": f"//x {HIDDEN}", "colour": "blue"}
    assert (task["attributes"]["extra"], task["manifest_key"]) == (b"\x00", "s3://fetchbox/manifests/j.json")
    assert not dead or row["undecodable"] == b"\xff"


def test_errors_of_jobs_are_shown_without_secrets():
    row = row_of(STATUS, JobStatus(job_id="j", last_error_message=f"GET {SIGNED} timed out").SerializeToString())
    assert row["last_error_message"] == f"GET {HIDDEN} timed out"


def test_rows_without_a_task_stay_without_one():
    sent = [DeadLetterTask(id="a"), DeadLetterTask(id="b", task=TASK), DeadLetterTask(id="c")]
    rows = [Row(0, f"{n}-0", {"payload": letter.SerializeToString()}) for n, letter in enumerate(sent)]
    tasks = decode(DLQ, rows).batch["task"].to_pylist()
    assert (tasks[0], tasks[1]["url"], tasks[2]) == (None, HIDDEN, None)


@settings(max_examples=most(40), deadline=None)
@given(data=st.data(), table=st.sampled_from([TASKS, DLQ, STATUS]))
def test_what_is_no_secret_stays(data, table):
    sent = data.draw(st.lists(rig.messages(table.message, valid=True), min_size=1, max_size=3))
    rows = [Row(0, f"{n}-0", {"payload": message.SerializeToString()}) for n, message in enumerate(sent)]
    shown = [rig.rebuilt(table.message, row) for row in decode(table, rows).batch.to_pylist()]
    for task in [message if table is TASKS else message.task for message in sent if table is not STATUS]:
        if task.url:
            task.url = redaction.url(task.url)  # which takes blanks off the ends of a URL
    assert shown == sent


@pytest.mark.parametrize(
    ("held", "shown"),
    [
        ({"headers": {"authorization": SECRET}}, {"headers": {"authorization": "REDACTED"}}),
        ([{"name": "Cookie", "value": SECRET}], [{"name": "Cookie", "value": "REDACTED"}]),
        ({"api_key": [{"a": SECRET}], "n": 1.5}, {"api_key": [{"a": "REDACTED"}], "n": 1.5}),
        ({"input": {"url": SIGNED, "tokens": 12}}, {"input": {"url": HIDDEN, "tokens": 12}}),
        ({"token": SECRET}, {"token": "REDACTED"}),
    ],
    ids=["member", "header", "below", "url", "token"],
)
def test_json_stays_json_without_its_secrets(held, shown):
    assert json.loads(redaction.json_text(json.dumps(held))) == shown


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"url": SIGNED}).replace("/", "\\/"),
        json.dumps({"token": SECRET}).replace("t", "\\u0074", 1),
        f'{{"a": "{SIGNED}", "a": 1}}',
        f'{{"secret": "{SECRET}"',
        f'{{"secret": "{SECRET}", "n": 1e999}}',
        '{"secret": ' + "[" * 100_000 + f'"{SECRET}"',
    ],
    ids=["slashes", "letters", "twice", "cut off", "infinite", "deep"],
)
def test_no_way_of_writing_json_hides_a_secret_from_redaction(text):
    assert SECRET not in redaction.json_text(text)


@pytest.mark.parametrize(
    "text", ['{ "a" : [1.10, "x"] }', '{"url": "https://h/a?page=2" }', "", "no json", '{"max_tokens": 5}', '"\\u00e9"']
)
def test_harmless_json_is_kept_byte_for_byte(text):
    assert redaction.json_text(text) == text


def test_events_keep_the_names_of_their_gates():
    data = json.dumps({"token": "g1", "payload": {"token": SECRET, "to": SIGNED}}).encode()
    event = FLOWS.message(kind="step.await.triggered", data=data, meta=b'{"flowId":"f"}')
    run = {"flow_id": "f", "flow_name": "n", "tenant": ""}
    row = decode(FLOWS, [Row(0, "1-0", fields(event), run)]).batch.to_pylist()[0]
    assert json.loads(row["data"]) == {"token": "g1", "payload": {"token": "REDACTED", "to": HIDDEN}}
    assert row["meta"] == '{"flowId":"f"}'


def test_payloads_of_tasks_are_redacted_and_other_bytes_are_not():
    queued = {"job_id": "j", "task": "chat", "payload": json.dumps({"password": SECRET}).encode()}
    row = row_of(DLQ, DeadLetterTask(queued_task=queued, undecodable=b'{"password": 1}').SerializeToString())
    assert row["queued_task"]["payload"] == b'{"password":"REDACTED"}'
    assert row["undecodable"] == b'{"password": 1}'


def test_entries_in_quarantine_keep_their_bytes():
    held = {"payload": b"\xff" + SIGNED.encode(), "traceparent": b"x"}
    assert [refused.row.fields for refused in decode(TASKS, [Row(0, "1-0", held)]).quarantined] == [held]


@pytest.mark.parametrize(
    "hostile", ["http://h " + "a" * 1_000_000, "http://h " + "a." * 500_000, "a1" * 500_000 + "://"]
)
def test_a_line_of_one_long_word_takes_no_longer_than_any_other(hostile: str) -> None:
    assert redaction.text(hostile) == hostile


def test_a_word_with_a_number_before_its_scheme_is_a_url_from_there() -> None:
    assert redaction.text(f"1.h2s://u:{SECRET}@h at 7+8://h") == "1.h2s://REDACTED@h at 7+8://h"


@pytest.mark.parametrize("hostile", ['{"' + '\\"' * 500_000, '["' + "a" * 1_000_000, '"\\' * 500_000])
def test_a_text_that_never_ends_takes_no_longer_than_any_other(hostile: str) -> None:
    assert redaction.json_text(hostile) == hostile
