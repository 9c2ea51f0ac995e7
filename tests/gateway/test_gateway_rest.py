"""Unary RPCs over HTTP: what reaches the service, what comes back, and how errors look."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest
import zstandard
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from multidict import CIMultiDict
from yarl import URL

from fetchbox.errors.v1 import errors_pb2
from fetchbox.operator.v1.job_pb2 import ComponentHealth
from fetchbox.operator.v1.operator_service_pb2 import HealthReport
from gateway import upstream
from gateway.errors import _of_status
from gateway.limits import Limits
from kernel.errors import FetchboxError, to_status
from tests.gateway.support import Call, Gateway, Rule, add_service, running

UPLOAD = "echo.v1.Upload"
EXTRA = {"request_headers": ["content-encoding", "x-extra"]}
RULES = [
    Rule("Get", {"get": "/v1/things/{name}"}),
    Rule("List", {"get": "/v1/things"}),
    Rule("Create", {"post": "/v1/things", "body": "*"}, rest={"success_status": 202}),
    Rule("Update", {"put": "/v1/things/{name}", "body": "*"}),
    Rule("Part", {"patch": "/v1/{inner.text=things/*}", "body": "inner"}),
    Rule("Inners", {"post": "/v1/inners", "body": "inners"}),
    Rule("Text", {"get": "/v1/text/{name}", "response_body": "name"}),
    Rule("Upload", {"post": "/v1/files/{name}", "body": "file"}, (UPLOAD, "google.api.HttpBody"), rest=EXTRA),
    Rule("Plain", {"post": "/v1/plain", "body": "file"}, (UPLOAD, UPLOAD)),
    Rule("Fail", {"get": "/v1/fail/{name}"}),
]


async def _echo(call: Call) -> Any:
    return call.request


async def _upload(call: Call) -> Any:
    return call.request.file


async def _fail(call: Call) -> Any:
    await call.context.abort_with_status(rpc_status.to_status(FAILURES[call.request.name]))


def _status(code: int, message: str, *details: Any) -> Status:
    status = Status(code=code, message=message)
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


_REPORT = HealthReport(
    status="unhealthy", components=[ComponentHealth(name="ledger", status="unhealthy", critical=True)]
)
FAILURES = {
    "foreign": _status(5, "no such café\nat all"),
    "conflict": to_status(FetchboxError(errors_pb2.REASON_IDEMPOTENCY_CONFLICT, "another document")),
    "slow": to_status(FetchboxError(errors_pb2.REASON_RATE_LIMITED, "later", retry_after=1.2)),
    "gone": to_status(FetchboxError(errors_pb2.REASON_GONE, "it is over")),
    "auth": to_status(FetchboxError(errors_pb2.REASON_UNAUTHORIZED, "who are you")),
    "health": to_status(FetchboxError(errors_pb2.REASON_UNAVAILABLE, "unhealthy", details=(_REPORT,))),
    "fields": _status(3, "bad", BadRequest(field_violations=[{"field": "a.b", "description": "required"}])),
    "other_domain": _status(7, "no", ErrorInfo(reason="NOT_FOUND", domain="elsewhere")),
    "retry": _status(14, "busy", RetryInfo(retry_delay={"seconds": 7})),
    "strange": Status(code=5, message="m", details=[AnyMessage(type_url="type.googleapis.com/no.Such", value=b"\x01")]),
}


@pytest.fixture
async def gateway(pool: DescriptorPool) -> AsyncIterator[Gateway]:
    functions = dict.fromkeys((rule.name for rule in RULES), _echo) | {"Upload": _upload, "Fail": _fail}
    async with running(pool, add_service(pool, RULES), functions, limits=Limits(body=4096, heartbeat=15)) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session


async def _json(answer: aiohttp.ClientResponse) -> Any:
    assert answer.content_type == "application/json"
    return json.loads(await answer.read())


_INNER = {"text": "t", "big": "0", "tags": [], "inner": {"text": "", "big": "7", "tags": []}}
_TIMES = {"at": "2026-01-01T19:04:05Z", "lasts": "1.500s", "mask": "a,b.cD"}
_WRAPPED = {"w64": "3", "wb": False, "blob": "YWI=", "wbytes": "YWI=", "number": "NaN", "maybe": 0}


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/v1/things/a%2Fb%20c", {"name": "a/b c"}),
        ("/v1/things/%25?someText=x+y%2Bz&tags=a,b&tags=c", {"name": "%", "someText": "x y+z", "tags": ["a,b", "c"]}),
        ("/v1/things/%C3%A9?i64=-9007199254740993", {"name": "é", "i64": "-9007199254740993"}),
        ("/v1/things/n?u64=18446744073709551615", {"u64": "18446744073709551615"}),
        ("/v1/things/n?inner.text=t&inner.inner.big=7", {"inner": _INNER}),
        ("/v1/things/n?color=BLUE&colors=1&colors=BLUE&flag=true", {"color": "BLUE", "colors": ["RED", "BLUE"]}),
        ("/v1/things/n?flag=true&called=x", {"flag": True, "called": "x"}),
        ("/v1/things/n?at=2026-01-02T03:04:05%2B08:00&lasts=1.5s&mask=a,b.cD", _TIMES),
        ("/v1/things/n?w64=3&wb=false&blob=YWI&wbytes=YWI%3D&number=NaN&maybe=0", _WRAPPED),
        ("/v1/things/n?one=&some_text=", {"one": "", "someText": ""}),
        ("/v1/things/n?some_text=a%26b%3Dc=d", {"someText": "a&b=c=d"}),
        ("/v1/things/n?&&tags=1&&", {"tags": ["1"]}),
    ],
)
async def test_path_and_query_become_fields(
    http: aiohttp.ClientSession, gateway: Gateway, target: str, fields: dict[str, Any]
) -> None:
    async with http.get(URL(gateway.url + target, encoded=True)) as answer:
        assert answer.status == 200
        body = await _json(answer)
    assert {name: body[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("nope=1", "nope"),
        ("name=evil", "name"),
        ("i32=x", "i32"),
        ("i32=", "i32"),
        ("i32=1&i32=2", "i32"),
        ("some_text=a&someText=b", "someText"),
        ("i64=1_0", "i64"),
        ("u32=-1", "u32"),
        ("flag=yes", "flag"),
        ("flag=1", "flag"),
        ("color=red", "color"),
        ("number=1e400", "number"),
        ("inner=x", "inner"),
        ("counts=x", "counts"),
        ("tags.x=1", "tags.x"),
        ("name.x=1", "name.x"),
        ("inners.text=1", "inners.text"),
        ("at.seconds=1", "at.seconds"),
        ("value=1", "value"),
        ("one=a&two=1", "two"),
        ("some_text=%FF", "some_text"),
        ("some_text=%zz", "some_text"),
        ("inner." * 200 + "text=1", "inner"),
    ],
)
@pytest.mark.req("R001-1.41", "R001-1.58")
async def test_a_parameter_that_does_not_fit_is_named(
    http: aiohttp.ClientSession, gateway: Gateway, query: str, word: str
) -> None:
    async with http.get(URL(f"{gateway.url}/v1/things/n?{query}", encoded=True)) as answer:
        assert answer.status == 400
        assert answer.headers["x-fetchbox-error"] == "INVALID_PAYLOAD"
        body = await _json(answer)
    assert body["code"] == 3
    assert word in body["message"]
    assert body["details"][0]["reason"] == "INVALID_PAYLOAD"
    assert not gateway.calls


async def test_the_body_becomes_the_message_and_the_path_decides(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    async with http.put("/v1/things/n", json={"someText": "t", "i64": 5}) as answer:
        assert (await _json(answer))["i64"] == "5"
    async with http.put("/v1/things/n", json={"name": "n"}) as answer:
        assert answer.status == 200
    async with http.put("/v1/things/n", json={"name": "evil"}) as answer:
        assert answer.status == 400
    async with http.put("/v1/things/n?i32=1", json={}) as answer:
        assert answer.status == 400
    async with http.patch("/v1/things/x?some_text=q", json={"big": "7"}) as answer:
        body = await _json(answer)
        assert (body["inner"]["text"], body["inner"]["big"], body["someText"]) == ("things/x", "7", "q")
    async with http.patch("/v1/things/x?inner.big=1", json={}) as answer:
        assert answer.status == 400
    async with http.post("/v1/inners", json=[{"text": "a"}, {"text": "b"}]) as answer:
        assert [inner["text"] for inner in (await _json(answer))["inners"]] == ["a", "b"]
    assert all(call.request.name != "evil" for call in gateway.calls)


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_an_empty_body_is_an_empty_message(http: aiohttp.ClientSession, gateway: Gateway, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/things", data=body, headers=headers) as answer:
        assert answer.status == 202
    assert gateway.calls[0].request == gateway.new("echo.v1.Thing")


async def test_response_body_is_one_field(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/text/hello") as answer:
        assert await _json(answer) == "hello"


async def test_a_body_where_none_belongs_is_refused(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    async with http.get("/v1/things/n", json={"i32": 1}) as answer:
        assert answer.status == 400
    assert not gateway.calls


@pytest.mark.req("R001-1.05")
@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 202),
        ('APPLICATION/JSON;Charset="UTF-8"', 202),
        ("application/vnd.thing+json", 202),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=iso-8859-1", 415),
        ("application/grpc", 415),
    ],
)
async def test_only_json_is_read(http: aiohttp.ClientSession, content_type: str, status: int) -> None:
    async with http.post("/v1/things", data=b"{}", headers={"Content-Type": content_type}) as answer:
        assert answer.status == status
        if status == 415:
            assert answer.headers["x-fetchbox-error"] == "UNSUPPORTED_MEDIA_TYPE"
            assert "gzip" in answer.headers["Accept-Encoding"]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "identity", "x-gzip"])
async def test_encoded_json_is_decoded(http: aiohttp.ClientSession, coding: str) -> None:
    body = json.dumps({"name": "n"}).encode()
    encoded = {"zstd": zstandard.compress, "identity": bytes}.get(coding, gzip.compress)(body)
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    async with http.post("/v1/things", data=encoded, headers=headers) as answer:
        assert (await _json(answer))["name"] == "n"


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("br", b"{}", 415),
        ("gzip, gzip", b"{}", 415),
        ("gzip", b"{}", 400),
        ("gzip", gzip.compress(b'{"name":"n"}')[:-9], 400),
        ("gzip", gzip.compress(b" " * 1_000_000 + b"{}"), 413),
        ("gzip", gzip.compress(b" " * 4000) + gzip.compress(b" " * 4000), 413),
        ("zstd", b"{}", 400),
        ("zstd", zstandard.compress(b" " * 1_000_000 + b"{}"), 413),
    ],
    ids=["brotli", "two", "no-gzip", "cut", "bomb", "two-members", "no-zstd", "zstd-bomb"],
)
async def test_what_cannot_be_decoded_is_refused(
    http: aiohttp.ClientSession, gateway: Gateway, coding: str, body: bytes, status: int
) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    async with http.post("/v1/things", data=body, headers=headers) as answer:
        assert answer.status == status
        await _json(answer)
    assert not gateway.calls


@pytest.mark.req("R001-1.61", "R001-1.37")
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/things", "/v1/files/x"])
async def test_a_body_over_the_limit_is_refused(
    http: aiohttp.ClientSession, gateway: Gateway, path: str, chunked: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 100

    data: Any = pieces() if chunked else b" " * 4097
    async with http.post(path, data=data, headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 413
        assert answer.headers["x-fetchbox-error"] == "PAYLOAD_TOO_LARGE"
        assert (await _json(answer))["code"] == 8
    async with http.post("/v1/files/x", data=b" " * 4096) as answer:
        assert answer.status == 200
    assert len(gateway.calls) == 1


@pytest.mark.req("R001-1.08")
async def test_bytes_pass_as_they_are(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    body = gzip.compress(b"\xff\x00\xfe")
    headers = {"Content-Type": "image/png", "Content-Encoding": "gzip"}
    async with http.post("/v1/files/n", data=body, headers=headers) as answer:
        assert answer.content_type == "image/png"
        assert await answer.read() == body
    (call,) = gateway.calls
    assert (call.request.name, call.request.file.data) == ("n", body)
    assert call.metadata["content-encoding"] == "gzip"
    async with http.post("/v1/plain", data=body, headers=headers) as answer:
        assert answer.status == 200  # this RPC does not read the header, so its bytes are decoded
    assert gateway.calls[1].request.file.data == b"\xff\x00\xfe"


@pytest.mark.req("R001-1.11")
async def test_only_named_headers_travel(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "Authorization": "Bearer x",
        "traceparent": traceparent,
        "tracestate": "a=b",
        "X-Extra": "1",
        "X-Other": "2",
        "Cookie": "c",
        "foo-bin": "AQI=",
        "X-Request-Id": "rid-1",
    }
    async with http.post("/v1/files/n", data=b"", headers=headers) as answer:
        assert answer.headers["X-Request-Id"] == "rid-1"
        assert "X-Extra" not in answer.headers
    metadata = {
        key: value
        for key, value in gateway.calls[0].metadata.items()
        if not key.startswith(("user-", "grpc-", "x-forwarded-"))
    }
    assert metadata == {
        "authorization": "Bearer x",
        "traceparent": traceparent,
        "tracestate": "a=b",
        "x-extra": "1",
        "x-request-id": "rid-1",
    }


async def test_headers_that_grpc_cannot_carry_are_refused(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    for headers in (
        {"X-Extra": "café"},
        {"X-Extra": "a\tb"},
        CIMultiDict([("X-Extra", "1"), ("X-Extra", "2")]),
        {"grpc-timeout": "BAD"},
        {"grpc-timeout": "1s"},
    ):
        async with http.post("/v1/files/n", data=b"", headers=headers) as answer:
            assert answer.status == 400
    async with http.post("/v1/files/n", data=b"", headers={"grpc-timeout": "0S"}) as answer:
        assert answer.status == 504
    assert not gateway.calls


@pytest.mark.req("R001-1.01")
async def test_a_known_path_with_another_method(http: aiohttp.ClientSession) -> None:
    async with http.delete("/v1/things/x") as answer:
        assert answer.status == 405
        assert set(answer.headers["Allow"].split(", ")) == {"GET", "PUT", "PATCH"}
        assert answer.headers["x-fetchbox-error"] == "METHOD_NOT_ALLOWED"
        await _json(answer)
    async with http.post("/v1/things/x", headers={"X-HTTP-Method-Override": "GET"}) as answer:
        assert answer.status == 405
    async with http.options("/v1/things") as answer:
        assert (answer.status, answer.headers["Allow"]) == (204, "GET, POST, OPTIONS")
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_an_unknown_path(http: aiohttp.ClientSession) -> None:
    for target in ("/nothing", "/v1/things/", "/v1//things"):
        async with http.get(target) as answer:
            assert answer.status == 404
            assert answer.headers["x-fetchbox-error"] == "NOT_FOUND"
            assert (await _json(answer))["code"] == 5


async def test_head_is_get_without_a_body(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    async with http.head("/v1/things/x") as answer:
        assert answer.status == 200
        assert await answer.read() == b""
    assert gateway.calls[0].request.name == "x"


@pytest.mark.parametrize(
    ("name", "status", "word", "code"),
    [
        ("foreign", 404, "NOT_FOUND", 5),
        ("conflict", 409, "IDEMPOTENCY_CONFLICT", 6),
        ("slow", 429, "RATE_LIMITED", 8),
        ("gone", 410, "GONE", 10),
        ("auth", 401, "UNAUTHORIZED", 16),
        ("health", 503, "UNAVAILABLE", 14),
        ("fields", 400, "INVALID_ARGUMENT", 3),
        ("other_domain", 403, "PERMISSION_DENIED", 7),
        ("retry", 503, "UNAVAILABLE", 14),
        ("strange", 404, "NOT_FOUND", 5),
    ],
)
@pytest.mark.req("R001-1.58", "R001-1.59", "R001-1.60", "R001-1.62", "R001-1.63")
async def test_an_error_of_the_service(
    http: aiohttp.ClientSession, name: str, status: int, word: str, code: int
) -> None:
    async with http.get(f"/v1/fail/{name}") as answer:
        assert (answer.status, answer.headers["x-fetchbox-error"]) == (status, word)
        plain = await _json(answer)
    assert (plain["code"], plain["message"]) == (code, FAILURES[name].message)
    async with http.get(f"/v1/fail/{name}", headers={"Accept": "application/problem+json"}) as answer:
        assert (answer.status, answer.content_type) == (status, "application/problem+json")
        problem = json.loads(await answer.read())
    assert (problem["status"], problem["detail"], problem["reason"]) == (status, plain["message"], word)
    assert problem["details"] == plain["details"]


@pytest.mark.req("R001-1.62", "R001-2.18", "R001-2.19")
async def test_the_facts_of_an_error_are_kept(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/fail/slow") as answer:
        assert answer.headers["Retry-After"] == "2"
    async with http.get("/v1/fail/retry") as answer:
        assert answer.headers["Retry-After"] == "7"
    async with http.get("/v1/fail/auth") as answer:
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    async with http.get("/v1/fail/conflict") as answer:
        assert (await _json(answer))["details"] == [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "IDEMPOTENCY_CONFLICT",
                "domain": "fetchbox",
            }
        ]
    async with http.get("/v1/fail/fields") as answer:
        assert (await _json(answer))["details"] == [
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "a.b", "description": "required"}],
            }
        ]
    async with http.get("/v1/fail/strange") as answer:
        assert (await _json(answer))["details"] == [{"@type": "type.googleapis.com/no.Such", "value": "AQ=="}]


async def test_a_service_that_is_down_is_503_without_its_address(pool: DescriptorPool) -> None:
    async with (
        running(pool, add_service(pool, RULES), {}, target="127.0.0.1:1") as gateway,
        aiohttp.ClientSession(gateway.url) as http,
        http.get("/v1/things/x") as answer,
    ):
        assert (answer.status, answer.headers["x-fetchbox-error"]) == (503, "UNAVAILABLE")
        text = await answer.text()
    assert "127.0.0.1" not in text
    assert "ipv4" not in text


async def test_an_answer_that_cannot_be_printed_is_500_and_tells_nothing(pool: DescriptorPool) -> None:
    async def broken(call: Call) -> Any:
        thing = type(call.request)()
        thing.at.seconds = 10**12
        return thing

    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with (
        running(pool, add_service(pool, rules), {"Get": broken}) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
        http.get("/v1/things/x") as answer,
    ):
        assert (answer.status, answer.headers["x-fetchbox-error"]) == (500, "INTERNAL_ERROR")
        assert "at" not in (await _json(answer))["details"][0]


async def test_a_request_from_a_foreign_web_page_is_refused(http: aiohttp.ClientSession, gateway: Gateway) -> None:
    host = f"127.0.0.1:{gateway.port}"
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": f"http://{host}"}, 202),
        ({"Origin": f"http://{host}"}, 202),
    ):
        async with http.post("/v1/things", data=b"", headers=headers) as answer:
            assert answer.status == status
    async with http.get("/v1/things", headers={"Sec-Fetch-Site": "cross-site"}) as answer:
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_client_that_leaves_cancels_the_call(pool: DescriptorPool) -> None:
    started, canceled = asyncio.Event(), asyncio.Event()

    async def wait(_call: Call) -> Any:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            canceled.set()
            raise

    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with running(pool, add_service(pool, rules), {"Get": wait}) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET /v1/things/x HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(started.wait(), 5)
        writer.close()
        await asyncio.wait_for(canceled.wait(), 1)


def test_every_grpc_code_has_its_http_status() -> None:
    expected = dict(enumerate((499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401), 1))
    found = {
        code.value[0]: _of_status(Status(code=code.value[0])).http_status for code in grpc.StatusCode if code.value[0]
    }
    assert found == expected
    assert _of_status(Status(code=1024)).http_status == 500


async def test_a_service_that_hangs_is_unavailable_with_a_reason(
    pool: DescriptorPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 504 is for a deadline of the client's own; beyond the gateway's the platform is what fails."""

    async def hang(_call: Call) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(upstream, "DEADLINE", 1.0)
    rules = [Rule("Get", {"get": "/v1/things/{name}"})]
    async with (
        running(pool, add_service(pool, rules), {"Get": hang}) as gateway,
        aiohttp.ClientSession(gateway.url) as http,
    ):
        async with http.get("/v1/things/x") as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (503, "UNAVAILABLE")
            assert answer.headers["Retry-After"] == "1"
            assert "same idempotency key" in (await _json(answer))["message"]
        async with http.get("/v1/things/x", headers={"grpc-timeout": "100m"}) as answer:
            assert (answer.status, answer.headers["x-fetchbox-error"]) == (504, "DEADLINE_EXCEEDED")
            assert "grpc-timeout" in (await _json(answer))["message"]
