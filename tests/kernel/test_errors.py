"""Errors: the tables come from the proto options, and each reason travels whole."""

from collections.abc import Callable
from typing import Any

import protovalidate
import pytest
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo

from fetchbox.errors.v1 import errors_pb2
from fetchbox.errors.v1.errors_pb2 import FailureCode, Reason
from fetchbox.flow.v1.event_pb2 import Meta
from fetchbox.flow.v1.flow_service_pb2 import TailKindsRequest
from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from fetchbox.operator.v1.operator_service_pb2 import ReplayDeadLettersRequest
from fetchbox.task.v1 import task_service_pb2
from kernel.bounds import oversized
from kernel.errors import (
    FetchboxError,
    Violation,
    failure_name,
    is_retryable,
    mapping,
    operator_code,
    reason_name,
    reason_of,
    to_status,
)
from kernel.validation import COUNTED, path_of, refusal, violations

SEED_STATUSES = {
    "INVALID_PAYLOAD": 400,
    "UNAUTHORIZED": 401,
    "UNSUPPORTED_JOB_TYPE": 403,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "IDEMPOTENCY_CONFLICT": 409,
    "GONE": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "UNAVAILABLE": 503,
}


@pytest.mark.req("R001-1.58", "R001-1.59", "R001-1.60", "R001-1.61", "R001-1.62", "R001-1.63")
@pytest.mark.parametrize(("name", "status"), SEED_STATUSES.items())
def test_each_reason_has_the_status_of_the_seed(name: str, status: int) -> None:
    reason = reason_of(name)
    assert reason is not None
    assert mapping(reason).http_status == status
    assert reason_name(reason) == name


def test_every_reason_and_failure_code_carries_its_mapping() -> None:
    for value in Reason.DESCRIPTOR.values[1:]:
        found = value.GetOptions().Extensions[errors_pb2.reason]
        assert 400 <= found.http_status < 600
        assert found.grpc_code != code_pb2.OK
    for value in FailureCode.DESCRIPTOR.values[1:]:
        assert value.GetOptions().HasExtension(errors_pb2.failure), value.name


def test_rules_are_told_for_people() -> None:
    """An empty value that is allowed is no choice to offer, and a length of at least one byte is that there is any."""
    listing = task_service_pb2.ListJobsRequest(status="finished")
    (broken,) = violations(listing)
    assert (broken.field, broken.description) == (
        "status",
        "must be in list [queued, running, done, partial, error, canceled]",
    )
    empty = violations(task_service_pb2.CreateJobRequest(task="chat"))
    assert [(one.field, one.description) for one in empty] == [("payload", "must not be empty")]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: TailKindsRequest(kinds=["a"] * n),
        lambda n: ReplayDeadLettersRequest(positions=["0/1-1"] * n),
        lambda n: Manifest(manifest_version="v1", resources=[_resource(0, 0), _resource(n, 0), _resource(0, n)]),
        lambda n: Meta(flow_id="f", tags=["a"] * n),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 10, 11, 32, 33, 50, 51, 500, 501])
def test_bounds_of_lists_and_maps_are_told_as_protovalidate_tells_them(make: Callable[[int], Any], count: int) -> None:
    """The compiled check stands in for it, since it looks at all that is there."""
    message = make(count)
    told = [
        (path_of(one.proto.field.elements), one.proto.message, one.proto.rule_id)
        for one in protovalidate.collect_violations(message)
        if one.proto.rule_id in ("repeated.max_items", "map.max_pairs")
    ]
    assert [(one.field, one.description, one.rule) for one in oversized(message)] == told


def _resource(headers: int, tags: int) -> Resource:
    held = {"headers": {f"h{i}": "a" for i in range(headers)}, "tags": {f"t{i}": "a" for i in range(tags)}}
    return Resource(id="a", url="http://a/", **held)


def test_only_so_many_violations_are_looked_for() -> None:
    many = [Violation("a", "is wrong")] * COUNTED
    assert refusal(many).message == "a: is wrong (and at least 999 more mistakes)"
    assert refusal(many[1:]).message == "a: is wrong (and 998 more mistakes)"


def test_a_status_carries_reason_violations_and_delay() -> None:
    error = FetchboxError(
        errors_pb2.REASON_RATE_LIMITED, "slow down", (Violation("a[3].b", "is too long", "string.max_len"),), 1.5
    )
    status = to_status(error)
    info, request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    for detail, packed in zip((info, request, retry), status.details, strict=True):
        assert packed.Unpack(detail)
    assert (info.reason, info.domain) == ("RATE_LIMITED", "fetchbox")
    assert request.field_violations[0].field == "a[3].b"
    assert retry.retry_delay.ToMilliseconds() == 1500
    assert status.code == code_pb2.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_http_statuses_that_may_pass_are_retried(status: int) -> None:
    assert is_retryable(failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_HTTP, status))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 501, 505])
def test_other_http_statuses_are_final(status: int) -> None:
    assert not is_retryable(failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_HTTP, status))


@pytest.mark.req("R001-2.13")
def test_operators_see_an_http_status_as_the_seed_shows_it() -> None:
    assert operator_code("DOWNLOAD_HTTP_403") == "HTTP_403"
    assert operator_code("DOWNLOAD_TRUNCATED") == "DOWNLOAD_TRUNCATED"
    assert reason_of("NO_SUCH_REASON") is None
