"""Events as JSON and as entries: nothing of data and meta is changed."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import codec, values
from flows.model.events import Meta, data_of, draft, members_of, meta_of
from gateway.message_types import Types
from gateway.options import Options
from gateway.writer import Writers
from kernel.errors import FetchboxError
from tests.flows.examples import EXAMPLES

STREAM = "nq:flow:6d1a0c52"


@pytest.mark.req(
    "R003-1.1.01", "R003-1.1.08", "R003-1.1.09", "R003-1.1.10", "R003-2.2.01", "R003-3.2.03", "R003-4.1.01"
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_seed_goes_through_the_schema_and_back(name: str) -> None:
    text = EXAMPLES[name]
    event = codec.from_json(text)
    again = codec.to_json(event)
    assert json.loads(again) == json.loads(text)
    assert list(json.loads(again)) == list(json.loads(text)), "the keys stand in the order of the seed"
    assert event.data in text, "byte for byte"
    assert codec.from_json(again) == event


@pytest.mark.req("R003-3.2.02")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_entry_gives_back_what_went_in(name: str) -> None:
    event = codec.from_json(EXAMPLES[name])
    held = codec.fields(event)
    assert list(held) == ["kind", "subject", "data", "meta", "v"]
    found = codec.event_of(STREAM, "1719667845123-7", held)
    assert (found.id, found.stream, found.ts) == ("1719667845123-7", STREAM, "2024-06-29T13:30:45.123Z")
    for name_ in ("id", "stream", "ts"):
        found.ClearField(name_)
        event.ClearField(name_)
    assert found == event


def test_the_gateway_prints_the_same() -> None:
    printed = Writers(Types(descriptor_pool.Default()), Options()).of(Event.DESCRIPTOR)
    for text in EXAMPLES.values():
        event = codec.from_json(text)
        assert values.dump(printed(event)) == codec.to_json(event)


@pytest.mark.req("R003-1.1.09")
@pytest.mark.parametrize(
    "data",
    [
        b"847458834325543643",
        b"[]",
        b"{}",
        b'"x"',
        b"null",
        b" {\n }",
        b"1e400",
        b"123456789012345678901234567890",
        b"1.0",
    ],
)
def test_data_is_any_json_kept_byte_for_byte(data: bytes) -> None:
    event = codec.from_json(b'{"kind":"a.b", "data":%s ,"meta":{"x":%s}}' % (data, data))
    assert event.data == data.strip()
    assert event.meta == b'{"x":%s}' % data
    held = codec.event_of(STREAM, "1-0", codec.fields(event))
    assert b'"data":%s,' % data.strip() in codec.to_json(held)


@pytest.mark.req("R003-1.1.17")
def test_the_version_is_1_where_none_is_given() -> None:
    event = codec.from_json(b'{"kind":"a.b"}')
    assert not event.HasField("v")
    assert codec.event_of(STREAM, "1-0", codec.fields(event)).v == 1


@pytest.mark.req("R003-1.1.01", "R003-1.1.06", "R003-2.2.01")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b"", "event"),
        (b"[]", "event"),
        (b"{", "event"),
        (b'{"kind":"a.b"} x', "event"),
        (b'{"kind":"a.b","data":{1}}', "event"),
        (b'{"kind":"a.b","data":NaN}', "event"),
        (b'{"kind":"a.b","kind":"c.d"}', "event"),
        (b'\xff{"kind":"a.b"}', "event"),
        (b'{"data":{}}', "kind"),
        (b'{"kind":1}', "kind"),
        (b'{"kind":null}', "kind"),
        (b'{"kind":"\\ud800"}', "kind"),
        (b'{"kind":"a.b","subject":[]}', "subject"),
        (b'{"kind":"a.b","id":7}', "id"),
        (b'{"kind":"a.b","v":"1"}', "v"),
        (b'{"kind":"a.b","v":1.5}', "v"),
        (b'{"kind":"a.b","v":9999999999}', "v"),
        (b'{"kind":"a.b","more":1}', "more"),
        (b'{"kind":"a.b","traceId":"x"}', "traceId"),
        (b"[" * 3000 + b"]" * 3000, "event"),
    ],
)
def test_what_is_no_envelope_is_refused_with_its_path(text: bytes, path: str) -> None:
    with pytest.raises(FetchboxError) as caught:
        codec.from_json(text)
    assert caught.value.violations[0].field == path


@given(st.integers(0, 253_402_300_799_999))
def test_times_go_there_and_back(ms: int) -> None:
    text = codec.iso(ms)
    assert codec.millis(text) == ms
    assert datetime.fromisoformat(text) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert len(text) == len("2025-10-28T12:34:56.789Z")


@pytest.mark.parametrize("text", ["", "2025-10-28", "2025-10-28T12:34:56", "soon", "12:34Z"])
def test_a_time_needs_a_zone(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the texts differ
        codec.millis(text)


def test_a_time_may_be_of_any_zone() -> None:
    assert codec.millis("2025-10-28T14:34:56.7899+02:00") == codec.millis("2025-10-28T12:34:56.789Z")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
TEXTS = st.tuples(JSON, st.sampled_from([None, 1]), st.booleans()).map(
    lambda drawn: json.dumps(drawn[0], indent=drawn[1], ensure_ascii=drawn[2]).encode(errors="surrogatepass")
)


@given(JSON)
def test_values_go_there_and_back(value: object) -> None:
    text = values.dump(value)
    assert values.load(text) == value
    assert repr(values.load(text)) == repr(value), "types and the order of keys too"


@given(st.dictionaries(st.text(max_size=6), TEXTS, max_size=5), TEXTS, TEXTS)
def test_members_are_slices_of_the_text(parts: dict[str, bytes], data: bytes, meta: bytes) -> None:
    text = b" {" + b" ,".join(b"%s :\n%s" % (json.dumps(key).encode(), part) for key, part in parts.items()) + b"} "
    assert values.members(text) == parts
    event = codec.from_json(b'{"kind":"a.b","meta":%s,"data" : %s}' % (meta, data))
    assert (event.data, event.meta) == (data, meta)


@pytest.mark.req("R003-1.1.02", "R003-1.1.03", "R003-1.1.04", "R003-1.1.05")
def test_the_size_is_that_of_the_record() -> None:
    event = draft("runner.log", {"level": "info", "msg": 'a "quoted" é'}, {"flowId": "6d1a0c52"}, "q")
    assert [name for name in ("id", "stream", "ts") if event.HasField(name)] == []
    held = codec.event_of(STREAM, "1719667845123-123456", codec.fields(event))
    assert codec.size(event, STREAM) == len(codec.to_json(held))
    event.ts = "whatever a producer wrote " * 10
    assert codec.size(event, STREAM) == len(codec.to_json(held)), "the store replaces it"


@pytest.mark.req("R003-1.1.11", "R003-1.1.12", "R003-1.1.13", "R003-1.1.14", "R003-1.1.15", "R003-1.1.16", "R003-5.01")
def test_meta_is_read_by_its_reserved_keys() -> None:
    told = {"flowId": "f", "flowName": "n", "stepKey": "s", "stepRunId": "r", "attempt": 2, "jobId": "j", "queue": "q"}
    event = draft("a.b", None, {**told, "tags": ["x", "y"], "own": 1})
    assert meta_of(event) == Meta("f", "n", "s", "r", 2, "j", "q", ("x", "y"))
    assert meta_of(draft("a.b", None, b'{"flowId":1,"attempt":true,"tags":["x",1],"queue":null}')) == Meta(tags=("x",))
    assert meta_of(draft("a.b", None, {**told, "own": "x" * 5000})).flow_id == "f"
    assert meta_of(draft("a.b")) == meta_of(draft("a.b", None, b"nonsense")) == Meta()


def test_data_is_read_exactly() -> None:
    event = draft("a.b", b'{"n": 123456789012345678901234567890, "l": [ ]}')
    assert data_of(event) == {"n": 123456789012345678901234567890, "l": []}
    assert members_of(event) == {"n": b"123456789012345678901234567890", "l": b"[ ]"}
    assert data_of(draft("a.b", b"[1]")) == data_of(draft("a.b")) == members_of(draft("a.b")) == {}


@pytest.mark.parametrize("value", [object, {1: {2}}, values.load(b"1e400"), [2**70, values.load(b"1" * 5000)]])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the texts differ
        values.dump(value)


def test_repeated_keys_read_as_their_last() -> None:
    assert values.members(b'{"a":1,"a":[2]}') == {"a": b"[2]"}
    assert values.load(b'{"a":1,"a":[2]}') == {"a": [2]}


def test_depth_is_no_matter_for_members_and_is_told_where_it_is() -> None:
    deep = b"[" * 1000 + b"1" + b"]" * 1000
    assert values.members(b'{"a":%s,"b":{"c":"}"}}' % deep) == {"a": deep, "b": b'{"c":"}"}'}
    nested: list[object] = []
    for _ in range(300):
        nested = [nested]
    assert values.dump(nested) == b"[" * 301 + b"]" * 301
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(ValueError, match="too deeply"):
        values.dump(nested)
    with pytest.raises(ValueError, match="too deeply"):
        values.load(b"[" * 5000 + b"]" * 5000)


@pytest.mark.parametrize("text", [b"-1e400", b"1e99999999999999999999", b"9" * 5000])
def test_a_number_beyond_every_double_is_json(text: bytes) -> None:
    assert values.members(b'{"n" : %s }' % text) == {"n": text}
    assert abs(values.load(text)) == float("inf")


def test_depth_counts_brackets_outside_of_strings() -> None:
    assert values.is_deeper(b"[" * 101 + b"]" * 101, 100)
    assert not values.is_deeper(b"[" * 100 + b"]" * 100, 100)
    assert not values.is_deeper(b'["' + b"[" * 200 + b'\\"[", [], {}]', 100)
