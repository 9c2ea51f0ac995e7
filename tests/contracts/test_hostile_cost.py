"""No input costs more than its size: hostile inputs of doubling size through each entrance.

A row is an entrance: what makes an input of a size, and what reads it; a refusal is as good as an answer. The cost is
CPU time of this thread, the least of a few tries. When the size doubles, a linear cost doubles and a quadratic one is
four times as much; over three doublings that is 8 against 64, and the bound lies between them with room for noise.
"""

import base64
import contextlib
import gzip
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import zstandard
from google.protobuf import descriptor_pool

from fetchbox.flow.v1 import flow_service_pb2 as flow_pb2
from fetchbox.task.v1 import task_service_pb2 as task_pb2
from gateway import accept, body
from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.query import parameters, unescape_multi
from ingest_svc.strict_json import JsonError, members, read_value
from kernel import pages, redaction
from kernel.decompress import decompress
from kernel.errors import FetchboxError
from kernel.flows.kinds import fits
from kernel.validation import require_valid
from producer_svc.globs import Globs

LIMIT = 5 << 20
DOUBLINGS = 3
BOUND = 30
"""The most that the cost may grow over the doublings: a line makes 8 of it, a square 64."""
FLOOR = 2e-3
"""Seconds of CPU below which a cost is noise."""
REFUSALS = (FetchboxError, JsonError, MismatchError)

_codec = Codec(descriptor_pool.Default())
_create = _codec.parser(task_pb2.CreateJobRequest.DESCRIPTOR)
_start = _codec.parser(flow_pb2.StartFlowRequest.DESCRIPTOR)

_STARS = Globs("include_globs", ["*a" * 30 + "b"])
_DIRECTORIES = Globs("include_globs", ["**/a/" * 30 + "b"])


class Row(NamedTuple):
    """One entrance and one kind of hostile input."""

    name: str
    make: Callable[[int], Any]
    read: Callable[[Any], object]
    size: int
    """The smallest input, in units of `make`."""


def _gzip_members(count: int) -> bytes:
    return gzip.compress(b"") * count


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def _distinct_then_twice(count: int) -> bytes:
    keys = ",".join(f'"k{number}":0.5' for number in range(count))
    return f'{{{keys},"k{count - 1}":1e400}}'.encode()


def _long_path_with_many_children(count: int) -> bytes:
    inner = ",".join(["{}"] * count)
    return f'{{"{"k" * count * 8}":[{inner}],"a":1,"a":2}}'.encode()


def _payload(value: bytes) -> bytes:
    return b'{"task":"chat","payload":{"a":%s}}' % value


def _create_job(text: bytes) -> object:
    return _create(task_pb2.CreateJobRequest(), text)


def _tail(patterns: list[str]) -> None:
    require_valid(flow_pb2.TailKindsRequest(kinds=patterns))


ROWS = [
    Row("gateway body: gzip members", _gzip_members, lambda data: body.decode(data, "gzip", LIMIT), 200),
    Row(
        "gateway body: bytes behind a member",
        lambda n: gzip.compress(b"a") + b"x" * n,
        lambda data: body.decode(data, "gzip", LIMIT),
        1 << 17,
    ),
    Row(
        "gateway body: expansion",
        lambda n: gzip.compress(b" " * n * 1000),
        lambda data: body.decode(data, "gzip", LIMIT),
        600,
    ),
    Row(
        "document: zstd frames",
        lambda n: zstandard.compress(b"a") * n,
        lambda data: decompress(data, "zstd", LIMIT),
        100,
    ),
    Row(
        "document: zstd expansion",
        lambda n: zstandard.compress(b" " * n * 1000),
        lambda data: decompress(data, "zstd", LIMIT),
        600,
    ),
    Row("gateway JSON: distinct keys, one twice", _distinct_then_twice, _create_job, 4000),
    Row("gateway JSON: raw value of distinct keys", lambda n: _payload(_distinct_then_twice(n)), _create_job, 4000),
    Row("gateway JSON: many small values", lambda n: _payload(b"[" + b"[]," * n + b"0]"), _create_job, 100_000),
    Row(
        "gateway JSON: white space",
        lambda n: b" " * n + b'{"task"' + b" " * n + b':"x"' + b"\n" * n + b"}",
        _create_job,
        1 << 17,
    ),
    Row("gateway JSON: depth", lambda n: _payload(_nested(n)), _create_job, 4000),
    Row("gateway JSON: open brackets", lambda n: _payload(b"[" * n), _create_job, 4000),
    Row("gateway JSON: long numbers", lambda n: b'{"ttl_s":%s}' % (b"1" * n), _create_job, 20_000),
    Row("gateway JSON: long fractions", lambda n: b'{"ttl_s":0.%s}' % (b"1" * n), _create_job, 20_000),
    Row("gateway JSON: escapes", lambda n: b'{"task":"%s' % (b"\\" * n), _create_job, 1 << 17),
    Row("query: parameters", lambda n: "&".join(f"a{i}=%41" for i in range(n)), parameters, 4000),
    Row("path: escaped slashes", lambda n: "%2F" * n, unescape_multi, 8000),
    Row(
        "Accept: many types",
        lambda n: ",".join(f"a/b{i};q=0.{i}" for i in range(n)),
        lambda text: accept.best(text, ("a/b", "c/d")),
        4000,
    ),
    Row(
        "page token: depth",
        lambda n: base64.urlsafe_b64encode(_nested(n)).decode(),
        lambda text: pages.cursor(text, ()),
        4000,
    ),
    Row("manifest: distinct keys, one twice", _distinct_then_twice, lambda text: members(text, "document"), 4000),
    Row(
        "manifest: a long path with many children",
        _long_path_with_many_children,
        lambda text: read_value(text, "x"),
        4000,
    ),
    Row("manifest: depth", _nested, lambda text: read_value(text, "x"), 4000),
    Row("manifest: quotes", lambda n: b'["' + b'\\"' * n, lambda text: read_value(text, "x"), 1 << 17),
    Row("kinds: stars", lambda n: "*" * n + "x", lambda pattern: fits(pattern, "a" * len(pattern)), 500),
    Row(
        "kinds: stars and letters", lambda n: "a*" * n + "b", lambda pattern: fits(pattern, "a" * 2 * len(pattern)), 500
    ),
    Row("kinds: parts", lambda n: "*." * n + "**", lambda pattern: fits(pattern, "a." * len(pattern) + "b"), 500),
    Row("kinds: many patterns", lambda n: ["*" * n], _tail, 1000),
    Row("globs: stars", lambda n: "a" * n, lambda name: _STARS.match(name, name), 4000),
    Row("globs: any directories", lambda n: "a/" * n + "c", lambda path: _DIRECTORIES.match(path, "c"), 500),
    Row("redaction: schemes", lambda n: "a" * n + "://", redaction.text, 20_000),
    Row("redaction: headers", lambda n: "cookie" + " " * n, redaction.text, 4000),
    Row("redaction: dots", lambda n: "+." * n, redaction.text, 20_000),
    Row("redaction: query", lambda n: "https://a/?" + "a=%25&" * n, redaction.text, 4000),
]


def _cost(row: Row, size: int) -> float:
    """The least CPU of a few tries, in seconds."""
    given = row.make(size)
    costs = []
    for _ in range(3):
        began = time.thread_time()
        with contextlib.suppress(*REFUSALS):
            row.read(given)
        costs.append(time.thread_time() - began)
    return min(costs)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_cost_grows_no_faster_than_size(row: Row) -> None:
    first, last = _cost(row, row.size), _cost(row, row.size << DOUBLINGS)
    assert last <= BOUND * max(first, FLOOR), (
        f"{row.name}: {first:.4f} s, and {last:.4f} s for {1 << DOUBLINGS} times as much"
    )


def test_the_measure_knows_a_square_from_a_line() -> None:
    """A test that cannot fail is worse than none."""
    text = json.dumps(list(range(1000)))
    square = Row("square", lambda n: n, lambda n: [text.count(str(i)) for i in range(n * n // 100)], 100)
    first, last = _cost(square, square.size), _cost(square, square.size << DOUBLINGS)
    assert last > BOUND * first
