"""No input costs more than its size: hostile inputs of doubling size through each entrance.

A row is an entrance: what makes an input of a size, and what reads it; a refusal is as good as an answer.
Scripts have their rows in `tests/kernel/test_script_costs.py`, answers of model servers in
`tests/tasks/test_model_server_cost.py`.
"""

import base64
import contextlib
import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import brotli
import pytest
import zstandard
from google.api.httpbody_pb2 import HttpBody
from google.protobuf import descriptor_pool

from fetchbox.config.v1.config_pb2 import FlowEngine, Security
from fetchbox.flow.v1 import flow_service_pb2 as flow_pb2
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from fetchbox.ingest.v1.manifest_pb2 import Manifest, Resource
from fetchbox.task.v1 import task_service_pb2 as task_pb2
from flows.gates.deliveries import Correlation
from flows.model.kinds import fits
from gateway import accept, body
from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.query import parameters, unescape_multi
from gateway.routes import routes_of
from gateway.splitting import Splitter
from ingest_svc import reading
from ingest_svc.flow_order import check_input
from ingest_svc.manifest import read_members
from ingest_svc.order_reading import OrderReader, pieces
from ingest_svc.request import Headers
from ingest_svc.secret_rules import SecretRules
from ingest_svc.signatures import Signatures
from ingest_svc.strict_json import JsonError, members, read_value
from ingest_svc.task_order import Sender, check_payload
from ingest_svc.webhook import payload_of
from kernel import pages, redaction
from kernel.auth import Authenticator, Caller
from kernel.by_value import by_value
from kernel.config.loading import defaults
from kernel.decompress import IDENTITY, decompress
from kernel.errors import FetchboxError
from kernel.json_count import MOST_VALUES
from kernel.offload import Offload
from kernel.telemetry import tracing
from kernel.validation import require_valid
from producer_svc.globs import Globs
from tests.growth import excess
from worker_svc import told
from worker_svc.fetch import coding

LIMIT = 5 << 20
REFUSALS = (
    *(FetchboxError, JsonError, MismatchError),
    *(coding.CorruptCodingError, coding.ExpansionError, coding.ForeignCodingError, coding.TruncatedCodingError),
)

_codec = Codec(descriptor_pool.Default())
_create = _codec.parser(task_pb2.CreateJobRequest.DESCRIPTOR)
_create_many = _codec.parser(task_pb2.CreateJobsRequest.DESCRIPTOR)
_start = _codec.parser(flow_pb2.StartFlowRequest.DESCRIPTOR)

_TASKS = task_pb2.DESCRIPTOR.services_by_name["TaskService"]
_lines = Splitter(next(route for route in routes_of(_TASKS) if route.method.name == "CreateJob"), _codec)
_config = defaults()
_config.tasks.max_payload_bytes = LIMIT
_config.tasks.chat.handler = "remote"
_batches = OrderReader(_config, SecretRules(_config))
_nobody = Sender(Caller(), "", "", None)
_signed = FlowEngine(webhook_body_only=["body"])
_webhooks = Signatures(_signed, {"place": "s", "body": "s"}, clients=None, offload=Offload())  # type: ignore[arg-type]

_callers = Authenticator(Security(operator_tokens=["t"]))
_SIGNED = "x-fetchbox-signature"

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


def _many(count: int) -> bytes:
    return b'{"a":[' + b"0," * count + b"0]}"


def _distinct_then_twice(count: int) -> bytes:
    keys = ",".join(f'"k{number}":0.5' for number in range(count))
    return f'{{{keys},"k{count - 1}":1e400}}'.encode()


def _distinct(count: int) -> bytes:
    return json.dumps(dict.fromkeys(map(str, range(count)), 0)).encode()


def _long_path_with_many_children(count: int) -> bytes:
    inner = ",".join(["{}"] * count)
    return f'{{"{"k" * count * 8}":[{inner}],"a":1,"a":2}}'.encode()


def _payload(value: bytes) -> bytes:
    return b'{"task":"chat","payload":{"a":%s}}' % value


def _batch_of(text: bytes) -> object:
    return _create_many(task_pb2.CreateJobsRequest(), text)


def _read_batch(orders: Sequence[bytes]) -> object:
    """As ingest does: piece by piece, each order whatever becomes of the others."""
    request = task_pb2.CreateJobsRequest.FromString(b"".join(orders))
    with contextlib.suppress(FetchboxError):
        require_valid(request)
    return [_batches.read(piece, _nobody) for piece in pieces(request.requests)]


def _orders(count: int, **members: Any) -> list[bytes]:
    one = task_pb2.CreateJobRequest(task="chat", payload=b"{}")
    one.MergeFrom(task_pb2.CreateJobRequest(**members))
    return [task_pb2.CreateJobsRequest(requests=[one]).SerializeToString()] * count


def _create_job(text: bytes) -> object:
    return _create(task_pb2.CreateJobRequest(), text)


def _ndjson(text: bytes) -> object:
    return _lines(text, "application/x-ndjson")


def _document(text: bytes) -> object:
    document = HttpBody(content_type="application/json", data=text)
    return reading.read(SubmitJobRequest(document=document), IDENTITY, _config.ingest)


def _typed(manifest: Manifest) -> object:
    return reading.read(SubmitJobRequest(manifest=manifest), "", _config.ingest)


def _of_one(**members: Any) -> Manifest:
    return Manifest(manifest_version="v1", resources=[Resource(id="a", url="http://a/", **members)])


def _undo(header: str, data: bytes) -> None:
    """As the fetcher does: whole, and to nowhere."""
    work = coding.DecodingWork()
    decoder = coding.decoder_for(coding.codings(header), work)
    assert decoder is not None
    for start in range(0, len(data), 65_536):
        piece = data[start : start + 65_536]
        work.allow(len(piece))
        for _ in decoder.feed(piece):
            pass
    decoder.finish()


def _packed(times: int, data: bytes) -> bytes:
    return data if not times else gzip.compress(_packed(times - 1, data))


def _signature(channel: str, *sent: tuple[str, str]) -> None:
    """Nothing waits before a wrong signature is refused, so no loop is needed."""
    place = Correlation("", "webhook", channel, "7")
    with contextlib.suppress(StopIteration):
        _webhooks.proof(place, b"{}", Headers(sent)).send(None)


def _admit(metadata: dict[str, str]) -> None:
    _callers.admit(metadata, frozenset())


def _webhook(data: bytes, media_type: str = "application/json") -> object:
    return payload_of(HttpBody(content_type=media_type, data=data), IDENTITY, LIMIT)


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
    Row("batch: orders that break every rule", lambda n: _orders(n, task="x", ttl_s=1), _read_batch, 100),
    Row("batch: one large payload", lambda n: _orders(99) + _orders(1, payload=_distinct(n)), _read_batch, 1000),
    Row("batch: distinct keys, one twice", lambda n: _orders(20, payload=_distinct_then_twice(n)), _read_batch, 200),
    Row("batch: orders under one key", lambda n: _orders(n, idempotency_key="k"), _read_batch, 200),
    Row("gateway JSON: a batch", lambda n: b'{"requests":[%s]}' % b",".join([_payload(b"{}")] * n), _batch_of, 200),
    Row("gateway JSON: distinct keys, one twice", _distinct_then_twice, _create_job, 1000),
    Row("gateway JSON: raw value of distinct keys", lambda n: _payload(_distinct_then_twice(n)), _create_job, 4000),
    Row("gateway JSON: many small values", lambda n: _payload(b"[" + b"[]," * n + b"0]"), _create_job, 10_000),
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
    Row("query: parameters", lambda n: "&".join(f"a{i}=%41" for i in range(n)), parameters, 1000),
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
    Row("manifest: distinct keys, one twice", _distinct_then_twice, lambda text: members(text, "document"), 1000),
    Row(
        "manifest: a long path with many children",
        _long_path_with_many_children,
        lambda text: read_value(text, "x"),
        4000,
    ),
    Row("manifest: depth", _nested, lambda text: read_value(text, "x"), 4000),
    Row("manifest: quotes", lambda n: b'["' + b'\\"' * n, lambda text: read_value(text, "x"), 1 << 17),
    Row("manifest: long numbers", lambda n: b"[%s]" % (b"1" * n), lambda text: read_value(text, "x"), 20_000),
    Row("manifest: unknown keys", _distinct, lambda text: read_members(members(text, "x")), 1000),
    Row("typed manifest: metadata of many values", lambda n: Manifest(metadata=_many(n)), _typed, 10_000),
    Row("typed manifest: headers", lambda n: _of_one(headers={f"h{i}": "a" for i in range(n)}), _typed, 500),
    Row(
        "typed manifest: tags that break rules", lambda n: _of_one(tags={f"t{i}\n": "" for i in range(n)}), _typed, 500
    ),
    Row(
        "typed manifest: faulty resources",
        lambda n: Manifest(resources=[Resource(headers={f"{i}\n": "\n" for i in range(10)})] * n),
        _typed,
        100,
    ),
    Row("manifest: wrong values", lambda n: b'{"resources":[%s0]}' % (b"0," * n), _document, 2000),
    Row("request: a list of wrong values", lambda n: ["\n"] * n, _tail, 2000),
    Row("task payload: many values", _many, lambda text: check_payload(text, _config.tasks), 10_000),
    Row("task payload: distinct keys", _distinct_then_twice, lambda text: check_payload(text, _config.tasks), 1000),
    Row("idempotency: many values", _many, by_value, 1000),
    Row("idempotency: long numbers", lambda n: b"[%s,1.%s]" % (b"1" * n, b"1" * n), by_value, 20_000),
    Row(
        "idempotency: depth",
        lambda n: b"[" * (n // 500) + b'"%s"' % (b"a" * n * 20) + b"]" * (n // 500),
        by_value,
        10_000,
    ),
    Row("flow input: many values", _many, lambda text: check_input(text, LIMIT), 10_000),
    Row("remote result: many values", _many, lambda text: told.check_result(text, LIMIT), 10_000),
    Row("NDJSON: many lines", lambda n: b"{}\n" * n, _ndjson, 2000),
    Row("NDJSON: empty lines", lambda n: b"\n" * n, _ndjson, 50_000),
    Row("NDJSON: one long line", lambda n: _payload(_many(n)) + b"\n", _ndjson, 10_000),
    Row("NDJSON: a quote that is not closed", lambda n: b"{}\n" * n + b'"' * n, _ndjson, 2000),
    Row("webhook: many values", _many, _webhook, 10_000),
    Row("webhook: text of escapes", lambda n: b"\x01" * n, lambda data: _webhook(data, "text/plain"), 50_000),
    Row(
        "webhook: a long signature", lambda n: "v1=" + "a" * n, lambda sent: _signature("place", (_SIGNED, sent)), 8000
    ),
    Row("webhook: many signatures", lambda n: "v1=a," * n, lambda sent: _signature("place", (_SIGNED, sent)), 2000),
    Row(
        "webhook: many times",
        lambda n: [(_SIGNED, "t=1,v1=a," * n), *(("x-fetchbox-timestamp", "1" * (i % 20)) for i in range(n))],
        lambda sent: _signature("place", *sent),
        500,
    ),
    Row(
        "webhook: many headers of a signature",
        lambda n: [("x-hub-signature-256", f"sha256={i}") for i in range(n)],
        lambda sent: _signature("body", *sent),
        500,
    ),
    Row("credentials: a long token", lambda n: {"authorization": "Bearer " + " " * n + "a" * n}, _admit, 8000),
    Row("trace: a long traceparent", lambda n: f"00-{'a' * 32}-{'b' * 16}-01-" + "-a" * n, tracing.trace_id, 8000),
    Row("fetch: gzip members", _gzip_members, lambda data: _undo("gzip", data), 200),
    Row(
        "fetch: gzip members in gzip",
        lambda n: _packed(1, _gzip_members(n)),
        lambda data: _undo("gzip, gzip", data),
        200,
    ),
    Row("fetch: gzip four times", lambda n: _packed(4, b" " * n * 1000), lambda data: _undo("gzip," * 4, data), 200),
    Row("fetch: zstd frames", lambda n: zstandard.compress(b"a") * n, lambda data: _undo("zstd", data), 100),
    Row(
        "fetch: zstd in zstd",
        lambda n: zstandard.compress(zstandard.compress(b" " * n * 1000)),
        lambda data: _undo("zstd, zstd", data),
        200,
    ),
    Row("fetch: br", lambda n: brotli.compress(b" " * n * 1000, quality=5), lambda data: _undo("br", data), 200),
    Row(
        "fetch: br in gzip",
        lambda n: _packed(1, brotli.compress(b"a" * n, quality=1)),
        lambda data: _undo("br, gzip", data),
        1000,
    ),
    Row("fetch: deflate", lambda n: zlib.compress(b" " * n * 1000), lambda data: _undo("deflate", data), 200),
    Row(
        "fetch: many codings",
        lambda n: "gzip," * n,
        lambda text: coding.decoder_for(coding.codings(text), coding.DecodingWork()),
        4000,
    ),
    Row("kinds: stars", lambda n: "*" * n + "x", lambda pattern: fits(pattern, "a" * len(pattern)), 500),
    Row(
        "kinds: stars and letters", lambda n: "a*" * n + "b", lambda pattern: fits(pattern, "a" * 2 * len(pattern)), 500
    ),
    Row("kinds: parts", lambda n: "*." * n + "**", lambda pattern: fits(pattern, "a." * len(pattern) + "b"), 500),
    Row("kinds: many patterns", lambda n: ["*"] * n, _tail, 1000),
    Row("globs: stars", lambda n: "a" * n, lambda name: _STARS.match(name, name), 4000),
    Row("globs: any directories", lambda n: "a/" * n + "c", lambda path: _DIRECTORIES.match(path, "c"), 500),
    Row("redaction: schemes", lambda n: "a" * n + "://", redaction.text, 20_000),
    Row("redaction: headers", lambda n: "cookie" + " " * n, redaction.text, 4000),
    Row("redaction: dots", lambda n: "+." * n, redaction.text, 20_000),
    Row("redaction: assignments", lambda n: 'token="x\\" --key ' * n, redaction.text, 500),
    Row("redaction: open brackets", lambda n: "token: [x " * n, redaction.text, 500),
    Row("redaction: elements", lambda n: "<token>" * n, redaction.text, 2000),
    Row("redaction: bearers", lambda n: "bearer " * n + " " * n, redaction.text, 2000),
    Row("redaction: nested URLs", lambda n: "https://a/?u=" * n, redaction.text, 100),
    Row("redaction: JSON", lambda n: '["a' + '\\"' * n + ' token=1"]', redaction.json_text, 2000),
    Row("redaction: query", lambda n: "https://a/?" + "a=%25&" * n, redaction.text, 500),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_cost_grows_no_faster_than_size(row: Row) -> None:
    assert not excess(row.make, row.read, row.size, REFUSALS)


def test_the_measure_knows_a_square_from_a_line() -> None:
    """A test that cannot fail is worse than none."""
    text = json.dumps(list(range(1000)))
    assert excess(lambda n: n, lambda n: [text.count(str(i)) for i in range(n * n // 10)], 100)


_TOO_MANY = b'{"a":[' + b"0," * MOST_VALUES + b"0]}"
DOORS = {
    "gateway": lambda: _create_job(_payload(_TOO_MANY)),
    "gateway, lines": lambda: _ndjson(b"{}\n" * (MOST_VALUES + 1)),
    "manifest": lambda: _document(_TOO_MANY),
    "typed manifest, metadata": lambda: _typed(Manifest(metadata=_TOO_MANY)),
    "typed manifest, attributes": lambda: _typed(Manifest(attributes=_TOO_MANY)),
    "task payload": lambda: check_payload(_TOO_MANY, _config.tasks),
    "flow input": lambda: check_input(_TOO_MANY, LIMIT),
    "webhook": lambda: _webhook(_TOO_MANY),
    "remote result": lambda: told.check_result(_TOO_MANY, LIMIT),
    "remote event": lambda: told.check_events([("log", _TOO_MANY)], 1, 1000),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_takes_a_document_of_too_many_values(door: str) -> None:
    """A scanner of JSON lets nothing else run until it is through."""
    with pytest.raises(REFUSALS, match="more than 500,000 JSON values"):
        DOORS[door]()
