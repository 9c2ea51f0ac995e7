"""The codec: it agrees with json_format on what is valid, refuses what is not, and keeps raw JSON byte for byte."""

import json
from typing import Any

import orjson
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fetchbox.ingest.v1 import ingest_service_pb2, manifest_pb2
from fetchbox.operator.v1 import job_pb2, operator_service_pb2
from fetchbox.worker.v1 import worker_service_pb2
from gateway import document
from gateway.codec import Codec
from gateway.mismatch import MismatchError
from gateway.options import Options
from kernel.json_count import MOST_VALUES, has_too_many_values
from tests.examples import most
from tests.gateway.messages import messages

SLOW = settings(deadline=None, max_examples=most(150), suppress_health_check=list(HealthCheck))


def _types() -> list[Descriptor]:
    files = (ingest_service_pb2, manifest_pb2, job_pb2, operator_service_pb2, worker_service_pb2)
    return [message for file in files for message in file.DESCRIPTOR.message_types_by_name.values()]


@pytest.fixture
def codec(pool: DescriptorPool) -> Codec:
    return Codec(pool)


@pytest.fixture
def sparse(pool: DescriptorPool) -> Codec:
    return Codec(pool, Options(zeros=False))


def _new(pool: DescriptorPool, name: str, **fields: Any) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"echo.v1.{name}"))(**fields)


def _read(codec: Codec, message: Any, text: str | bytes) -> Any:
    codec.parser(message.DESCRIPTOR)(message, text.encode() if isinstance(text, str) else text)
    return message


@SLOW
@given(data=st.data())
def test_agrees_with_json_format_on_messages_of_ours(data: st.DataObject) -> None:
    descriptor = data.draw(st.sampled_from(_types()))
    message = data.draw(messages(descriptor))
    codec = Codec(descriptor_pool.Default())
    text = codec.dumps(message)
    has_raw = codec.readers.member(descriptor) is not None
    if not has_raw:
        theirs = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
        assert orjson.loads(text) == orjson.loads(orjson.dumps(theirs))
    assert _read(codec, type(message)(), text) == message
    assert _read(codec, type(message)(), json_format.MessageToJson(message)) == message


@SLOW
@given(data=st.data())
def test_agrees_with_json_format_on_every_kind_of_field(echo_pool: DescriptorPool, data: st.DataObject) -> None:
    pool = echo_pool
    descriptor = pool.FindMessageTypeByName("echo.v1.Thing")
    message = data.draw(messages(descriptor))
    for zeros in (False, True):
        codec = Codec(pool, Options(zeros=zeros))
        text = codec.dumps(message)
        theirs = json_format.MessageToDict(message, always_print_fields_with_no_presence=zeros, descriptor_pool=pool)
        assert orjson.loads(text) == orjson.loads(orjson.dumps(theirs))
        assert _read(codec, type(message)(), text) == message
    assert _read(codec, type(message)(), json.dumps(theirs, indent=1)) == message


_KEYS = st.text('ab"\\{}[]:,é', max_size=4)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
)  # fmt: skip
_SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])


@SLOW
@given(
    data=_JSON,
    many=st.lists(_JSON.filter(lambda value: value is not None), max_size=3),
    spacing=_SPACING,
    ascii_only=st.booleans(),
)
@example(data={"a": 847458834325543643123, "b": [], "c": 1.10}, many=[{}], spacing=(" , ", " : "), ascii_only=False)
def test_raw_json_is_kept_byte_for_byte(
    echo_pool: DescriptorPool, data: Any, many: list[Any], spacing: tuple[str, str], ascii_only: bool
) -> None:
    pool = echo_pool

    def text(value: Any) -> str:
        return json.dumps(value, separators=spacing, ensure_ascii=ascii_only)

    body = (
        f'{{"name": "n", "data" : {text(data)} ,"many":[{" , ".join(map(text, many))}],'
        f'"inners":[{{"raw":{text(data)}, "text":"t"}}, {{}}],"named":{{"k":{{"raw":{text(data)}}}}}}}'
    )
    message = _read(Codec(pool), _new(pool, "Kept"), body)
    raw = b"" if data is None else text(data).encode()
    assert message.data == raw
    assert list(message.many) == [text(value).encode() for value in many]
    assert (message.inners[0].raw, message.inners[0].text, message.named["k"].raw) == (raw, "t", raw)
    printed = Codec(pool).dumps(message)
    assert (b'"data":' + (raw or b"null") + b',"many"') in printed
    assert _read(Codec(pool), _new(pool, "Kept"), printed) == message


def test_raw_json_may_hold_numbers_beyond_every_double(codec: Codec, pool: DescriptorPool) -> None:
    body = b'{"name":"","data":{"n":1e400,"m":-1E+999},"many":[],"inners":[],"named":{},"number":0.0}'
    message = _read(codec, _new(pool, "Kept"), body)
    assert message.data == b'{"n":1e400,"m":-1E+999}'
    assert codec.dumps(message) == body


def test_raw_json_keeps_its_own_repeated_keys_but_the_message_may_not(codec: Codec, pool: DescriptorPool) -> None:
    body = '{"data":{"a":1,"a":2}}'
    assert _read(codec, _new(pool, "Kept"), body).data == b'{"a":1,"a":2}'
    with pytest.raises(MismatchError, match="given twice"):
        _read(codec, _new(pool, "Kept"), '{"data":{},"data":{}}')


def test_raw_json_that_is_none_is_not_printed(codec: Codec, pool: DescriptorPool) -> None:
    for broken in (b"{", b"nope", b'{},"injected":1', b"\xff", b"NaN"):
        with pytest.raises(MismatchError, match="no valid JSON"):
            codec.dumps(_new(pool, "Kept", data=broken))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"nope":1}', "nope"),
        ('{"inner":{"nope":1}}', "inner.nope"),
        ('{"inners":[{},{"big":"x"}]}', "inners[1].big"),
        ('{"tags":["a",null]}', "tags[1]"),
        ('{"tags":"a"}', "tags"),
        ('{"tags":{}}', "tags"),
        ('{"inner":[]}', "inner"),
        ('{"counts":{"a":null}}', "counts.a"),
        ('{"counts":[]}', "counts"),
        ('{"byNumber":{"x":{}}}', "byNumber.x"),
        ('{"byNumber":{"1":{"big":[]}}}', "byNumber.1.big"),
        ('{"yes":{"True":""}}', "yes.True"),
        ('{"name":1}', "name"),
        ('{"flag":1}', "flag"),
        ('{"flag":"true"}', "flag"),
        ('{"i32":true}', "i32"),
        ('{"i32":1.5}', "i32"),
        ('{"i32":2147483648}', "i32"),
        ('{"i32":" 1"}', "i32"),
        ('{"i64":"1_000"}', "i64"),
        ('{"i64":"\uff11\uff12"}', "i64"),
        ('{"i64":""}', "i64"),
        ('{"i64":9223372036854775808}', "i64"),
        ('{"i64":9223372036854775807.5}', "i64"),
        ('{"u64":-1}', "u64"),
        ('{"u32":"1e999999999"}', "u32"),
        ('{"u32":"1e99999999999999999999"}', "u32"),
        ('{"u32":1e99999999999999999999}', "u32"),
        ('{"number":1e99999999999999999999}', "number"),
        ('{"struct":{"a":1e400}}', "struct.a"),
        ('{"number":1e400,"name":"\\ud800"}', "number"),
        ('{"i64":"' + "9" * 5000 + '"}', "i64"),
        ('{"i64":' + "9" * 5000 + "}", "i64"),
        ('{"number":1e400}', "number"),
        ('{"number":"inf"}', "number"),
        ('{"number":true}', "number"),
        ('{"small":3.5e38}', "small"),
        ('{"color":"red"}', "color"),
        ('{"color":true}', "color"),
        ('{"color":1.5}', "color"),
        ('{"blob":"!!!!"}', "blob"),
        ('{"blob":"YQ=a"}', "blob"),
        ('{"blob":"A"}', "blob"),
        ('{"at":"2026-02-30T00:00:00Z"}', "at"),
        ('{"at":"2026-1-2T03:04:05Z"}', "at"),
        ('{"at":"0000-01-01T00:00:00Z"}', "at"),
        ('{"at":"2026-01-02T03:04:05.1234567891Z"}', "at"),
        ('{"at":"2026-01-02T03:04:05"}', "at"),
        ('{"lasts":"1.5"}', "lasts"),
        ('{"lasts":"315576000001s"}', "lasts"),
        ('{"mask":"foo_bar"}', "mask"),
        ('{"any":{"@type":"type.googleapis.com/no.Such"}}', "any.@type"),
        ('{"nothing":{"a":1}}', "nothing.a"),
        ('{"one":"a","two":1}', "two"),
        ('{"someText":"a","some_text":"b"}', "someText"),
        ('{"name":"a","name":"b"}', "name"),
        ('{"inner":{"text":"a", "text":"b"}}', "text"),
        ('{"wb":"true"}', "wb"),
    ],
)
def test_what_is_refused_and_where(codec: Codec, pool: DescriptorPool, body: str, path: str) -> None:
    with pytest.raises(MismatchError) as refused:
        _read(codec, _new(pool, "Thing"), body)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "body",
    [
        b"", b"   ", b"[]", b'"x"', b"1", b"null", b"{", b'{"name":"a"} x', b'{"name":"a"}{}', b'{"name":"a",}',
        b"{'name':1}",
        b'{"name":"a"/**/}', b'{"name":"a\nb"}', b'{"name":"\xc3\x28"}', b'{"i32":01}', b'{"number":NaN}',
        b'{"number":+1}',
        b'{"name":"\\ud800"}',
        b'{"struct":{},"name":"\\ud800","number":1e400}',
        b"\xef\xbb\xbf{}", b'{"name" "a"}', b'{"number":1e400,}',
    ],
)  # fmt: skip
def test_what_is_no_json_or_no_object(codec: Codec, pool: DescriptorPool, body: bytes) -> None:
    with pytest.raises(MismatchError):
        _read(codec, _new(pool, "Thing"), body)
    with pytest.raises(MismatchError):
        _read(codec, _new(pool, "Kept"), body.replace(b"i32", b"number"))


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        ('{"i64":"9007199254740993"}', "i64", 9007199254740993),
        ('{"i64":9007199254740993}', "i64", 9007199254740993),
        ('{"i64":9007199254740993.0}', "i64", 9007199254740993),
        ('{"i64":"1e3"}', "i64", 1000),
        ('{"i32":1.0}', "i32", 1),
        ('{"u64":18446744073709551615}', "u64", 2**64 - 1),
        ('{"number":"1.5"}', "number", 1.5),
        ('{"number":"-Infinity"}', "number", float("-inf")),
        ('{"color":99}', "color", 99),
        ('{"color":"BLUE"}', "color", 2),
        ('{"blob":"_-8"}', "blob", b"\xff\xef"),
        ('{"blob":"/+8="}', "blob", b"\xff\xef"),
        ('{"called":"a"}', "renamed", "a"),
        ('{"renamed":"a"}', "renamed", "a"),
        ('{"name":null}', "name", ""),
        ('{"name":"\\u00e9\\ud83d\\ude00"}', "name", "é😀"),
        (' {"name" : "a" }\n', "name", "a"),
    ],
)
def test_what_is_taken(codec: Codec, pool: DescriptorPool, body: str, field: str, value: Any) -> None:
    assert getattr(_read(codec, _new(pool, "Thing"), body), field) == value


def test_a_document_has_so_many_values_and_what_strings_hold_is_none() -> None:
    for one in (b"[]", b"{}", b"0", b'""', b'",[{"', rb'"\",[\\"'):
        few = 100 // (2 if one in (b"[]", b"{}") else 1)
        assert not has_too_many_values(b"[" + b",".join([one] * few) + b"]", 100)
        assert has_too_many_values(b"[" + b",".join([one] * (few + 1)) + b"]", 100)
    assert document.load(b'"' + b"," * (MOST_VALUES + 2) + b'"')
    with pytest.raises(MismatchError, match="more than 500,000 JSON values"):
        document.load(b"[" + b"[]," * MOST_VALUES + b"[]]")


def test_deep_documents_are_refused_without_a_crash(codec: Codec, pool: DescriptorPool) -> None:
    for depth in (101, 500, 1000, 5000, 100_000):
        for name, key in (("Thing", "inner"), ("Kept", "inners")):
            opening, closing = ('{"inner":', "}") if key == "inner" else ('{"inners":[{"inner":', "}]}")
            body = opening + '{"inner":' * depth + "{}" + "}" * depth + closing
            with pytest.raises(MismatchError):
                _read(codec, _new(pool, name), body)
    with pytest.raises(MismatchError):
        _read(codec, _new(pool, "Thing"), '{"struct":' + '{"a":' * 200 + "1" + "}" * 201)
    with pytest.raises(MismatchError):
        _read(codec, _new(pool, "Kept"), '{"data":' + "[" * 2000 + "]" * 2000 + "}")


def test_what_is_json_by_its_grammar_is_printed_as_it_is(pool: DescriptorPool) -> None:
    codec = Codec(pool)
    for text in (b'"\\ud800"', b'{"a":[1e999,"\\udc00"]}', b"9" * 5000, b"[" * 1000 + b"]" * 1000):
        kept = _new(pool, "Kept")
        kept.data = text
        assert b'"data":' + text in codec.dumps(kept)
    for text in (b'"\\ud80"', b"NaN", b"{", b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b'"a\nb"'):
        kept = _new(pool, "Kept")
        kept.data = text
        with pytest.raises(MismatchError):
            codec.dumps(kept)


@pytest.mark.req("R001-2.09", "R001-2.12")
def test_zero_values_are_printed_and_presence_is_kept() -> None:
    codec = Codec(descriptor_pool.Default())
    printed = orjson.loads(codec.dumps(job_pb2.Job(job_id="j", log_cursor=job_pb2.LogCursor(stream="jobs.logs"))))
    assert printed["resource_completed"] == 0
    assert printed["log_cursor"] == {"stream": "jobs.logs", "offset": "0"}
    assert "last_error" not in printed
    assert "created_at" not in printed


def test_what_has_no_json_form_is_an_error(sparse: Codec, pool: DescriptorPool) -> None:
    thing = _new(pool, "Thing")
    thing.any.type_url = "type.googleapis.com/no.Such"
    with pytest.raises(MismatchError):
        sparse.dumps(thing)
    thing = _new(pool, "Thing")
    thing.at.seconds = 10**12
    with pytest.raises(MismatchError):
        sparse.dumps(thing)
    thing = _new(pool, "Thing")
    thing.value.number_value = float("nan")
    with pytest.raises(MismatchError):
        sparse.dumps(thing)


def test_any_is_read_and_printed_with_its_type(sparse: Codec, pool: DescriptorPool) -> None:
    for body in (
        b'{"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1s"}}',
        b'{"any":{"@type":"type.googleapis.com/echo.v1.Inner","text":"a","big":"7"}}',
    ):
        thing = _read(sparse, _new(pool, "Thing"), body)
        assert orjson.loads(sparse.dumps(thing)) == orjson.loads(body)
