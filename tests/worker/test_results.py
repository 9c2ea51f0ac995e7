"""The lines of the results document, and how runs of a job are merged into one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.handlers import StoredObject
from worker_svc import results

FIELDS = {
    "resource_id",
    "state",
    "key",
    "size",
    "sha256",
    "content_type",
    "final_url",
    "http_status",
    "attempts",
    "error_code",
    "error_message",
}
IDS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


def line(resource_id: str, failed: bool, attempts: int = 1) -> bytes:
    task = DownloadTask(resource_id=resource_id)
    if failed:
        return results.failed_line(task, attempts, "DOWNLOAD_HTTP_404", "not there", {"http_status": 404})
    return results.stored_line(task, attempts, StoredObject("s3://b/k", 3, "ab", "text/plain", "http://x/", 200))


def test_every_line_has_every_field() -> None:
    for raw in (line("a", failed=True), line("a", failed=False)):
        assert set(json.loads(raw)) == FIELDS
    assert json.loads(line("a", failed=True))["http_status"] == 404
    (missing,) = results.merge(["a"], [], [])
    assert set(missing) == FIELDS


@given(IDS, st.data())
def test_the_document_follows_the_manifest_and_the_last_run_of_each_resource(
    ids: list[str], data: st.DataObject
) -> None:
    former = data.draw(st.lists(st.sampled_from(ids), unique=True))
    latest = data.draw(st.lists(st.sampled_from(ids), unique=True))
    merged = results.merge(
        ids, [line(i, failed=True) for i in former], [line(i, failed=False, attempts=2) for i in latest]
    )
    assert [entry["resource_id"] for entry in merged] == ids
    for entry in merged:
        name = entry["resource_id"]
        expected = "stored" if name in latest else "failed" if name in former else "unknown"
        assert entry["state"] == expected
        assert set(entry) == FIELDS
    again = results.merge(ids, results.document(merged).splitlines(), [])
    assert again == merged


@given(IDS)
def test_a_canceled_job_says_so_of_each_resource_that_has_no_line(ids: list[str]) -> None:
    merged = results.merge(ids, [], [line(ids[0], failed=False)], canceled=True)
    assert [entry["state"] for entry in merged] == ["stored"] + ["canceled"] * (len(ids) - 1)
    assert {entry["error_code"] for entry in merged[1:]} <= {"SYSTEM_CANCELED"}


@given(IDS)
def test_without_a_manifest_the_lines_stay_in_the_order_of_their_settlement(ids: list[str]) -> None:
    merged = results.merge([], [], [line(i, failed=False) for i in ids])
    assert [entry["resource_id"] for entry in merged] == ids


@given(IDS)
def test_the_order_is_read_from_the_tasks_that_ingest_stored(ids: list[str]) -> None:
    tasks = [DownloadTask(resource_id=name).SerializeToString() for name in ids]
    packed = b"".join(bytes([len(task)]) + task for task in tasks)
    assert list(results.order_of(packed)) == ids


@pytest.mark.parametrize(
    ("code", "facts", "status"),
    [
        ("DOWNLOAD_HTTP_404", {}, 404),
        ("DOWNLOAD_HTTP_503", {"http_status": 503}, 503),
        ("HANDLER_HTTP_422", {}, 422),
        ("DOWNLOAD_TRUNCATED", {"http_status": 200}, 200),
        ("DOWNLOAD_DNS", {}, 0),
        ("OWN_CODE_404", {}, 0),
    ],
)
def test_a_failed_line_has_the_status_of_the_last_answer(code: str, facts: dict[str, int], status: int) -> None:
    line = results.failed_line(DownloadTask(resource_id="a"), 1, code, "no", facts)
    assert json.loads(line)["http_status"] == status
