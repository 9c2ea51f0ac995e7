"""Templates: what they come to, what is refused, and that nothing is lost on the way."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.definitions.templates import MAX_DEPTH, MAX_TEXT, TemplateError, expressions, mentions, render, render_text
from flows.model import values

BIG = 123456789012345678901234567890
NUMBERS = b'"n=%d l=[] f=0.5 t=true"' % BIG
SCOPE: dict[str, Any] = {
    "input": {
        "order": 17,
        "big": BIG,
        "seed": 847458834325543643,
        "none": None,
        "empty": [],
        "text": 'a "b" é\n',
        "f": 0.5,
    },
    "flow": {"id": "r1", "name": "harvest", "tenant": ""},
    "steps": {"fetch-all": {"result": {"z": 1, "a": [{"u": "x"}, {"u": "y"}]}, "jobId": "j1"}},
    "gates": {"approve": {"payload": {"ok": True}, "secret": "s3"}},
}


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ('"${input.order}"', b"17"),
        ('"${input.seed}"', b"847458834325543643"),
        ('"${input.big}"', str(BIG).encode()),
        ('"${input.empty}"', b"[]"),
        ('"${input.none}"', b"null"),
        ('"${input.missing.deep}"', b"null"),
        ('"${steps.gone.result}"', b"null"),
        ('"${steps.\\"fetch-all\\".result}"', b'{"z":1,"a":[{"u":"x"},{"u":"y"}]}'),
        ('"${steps.\\"fetch-all\\".result.a[*].u}"', b'["x","y"]'),
        ('"${join(\'}\', steps.\\"fetch-all\\".result.a[*].u)}"', b'"x}y"'),
        ('"${{n: input.order, \\"}\\": `{\\"k\\": 1}`}}"', b'{"n":17,"}":{"k":1}}'),
        ('"${gates.approve.payload.ok}"', b"true"),
        ('"order-${input.order}"', b'"order-17"'),
        ('"${flow.name}/${flow.id}"', b'"harvest/r1"'),
        ('"${input.order}${input.order}"', b'"1717"'),
        ('"n=${input.big} l=${input.empty} f=${input.f} t=${gates.approve.payload.ok}"', NUMBERS),
        ('"$${input.order} $ {x} $"', b'"${input.order} $ {x} $"'),
        ('"$${a}${input.order}$${b}"', b'"${a}17${b}"'),
        ('["${input.order}", {"${input.order}": "${flow.id}"}, 1, []]', b'[17,{"${input.order}":"r1"},1,[]]'),
        (f'{{"z": {BIG}, "a": 1.5, "m": {{}}}}', b'{"z":%d,"a":1.5,"m":{}}' % BIG),
        ('"plain"', b'"plain"'),
        ("7", b"7"),
    ],
)  # fmt: skip
def test_what_a_template_comes_to(template: str, result: bytes) -> None:
    assert render(template.encode(), SCOPE) == result


def test_texts_keep_their_characters() -> None:
    assert json.loads(render(b'"${input.text}"', SCOPE)) == SCOPE["input"]["text"]
    assert json.loads(render(b'">${input.text}<"', SCOPE)) == f">{SCOPE['input']['text']}<"
    assert render_text("${input.text}|${input.order}|$${x}", SCOPE) == f"{SCOPE['input']['text']}|17|${{x}}"
    assert render_text("", SCOPE) == ""


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ('"a ${input.missing}"', "finds nothing"),
        ('"a ${input.none}"', "finds nothing"),
        ('"${input.order"', "is not closed"),
        ("\"${join('}', input.x)\"", "is not closed"),
        ('"${}"', "empty"),
        ('"${input..x}"', "Parse error"),
        ('"${nothing(input)}"', "Unknown function"),
        ('"${length(input.order)}"', "invalid type"),
        ('"${length(input, input)}"', "Expected 1 argument"),
        ('"${&input}"', "no JSON form"),
        ('{"x": 1e400}', "no JSON form"),
        ("{", "is no JSON"),
        (f'"${{{"(" * 5000}input{")" * 5000}}}"', "recursion"),
    ],
)
def test_what_cannot_be_filled_in_is_told(template: str, told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        render(template.encode(), SCOPE)


def test_a_text_needs_all_its_values() -> None:
    for template in ("${input.missing}", "order-${input.none}"):
        with pytest.raises(TemplateError, match="finds nothing"):
            render_text(template, SCOPE)


def test_a_result_is_bounded() -> None:
    scope = {"input": {"x": "y" * 1000, "deep": values.load(b"[" * 80 + b"]" * 80)}}
    assert len(render(b'["${input.x}"]', scope, max_bytes=1004)) == 1004
    with pytest.raises(TemplateError, match="longer than 1003 bytes"):
        render(b'["${input.x}"]', scope, max_bytes=1003)
    many = json.dumps(["${input.x}"] * 10_000).encode()
    with pytest.raises(TemplateError, match="longer than 5242880 bytes"):
        render(many, scope)
    with pytest.raises(TemplateError, match=f"deeper than {MAX_DEPTH}"):
        render(b"[" * 21 + b'"${input.deep}"' + b"]" * 21, scope)
    assert render(b"[" * 20 + b'"${input.deep}"' + b"]" * 20, scope)
    with pytest.raises(TemplateError, match=f"longer than {MAX_TEXT}"):
        render_text("${input.x}" * 5, scope)


@pytest.mark.parametrize("text", [b"1e400", b"1" * 5000])
def test_a_number_beyond_every_double_is_told(text: bytes) -> None:
    with pytest.raises(TemplateError, match="no JSON form"):
        render(b'"${input}"', {"input": values.load(text)})


def test_secrets_are_found_where_they_are_mentioned() -> None:
    template = b'{"a": ["${gates.one.secret}", "x ${gates.\\"t-w\\".secret}"], "b": "${gates.three.payload}"}'
    assert mentions(template) == {"one", "t-w"}
    assert mentions(b'"${join(input.secret, [gates.one.secret, input.x[?gates.two.secret]])}"') == {"one"}
    assert mentions(b'"$${gates.four.secret}"') == set()
    assert mentions(b'"${steps.one.secret || @.gates.five.secret}"') == {"five"}


@pytest.mark.parametrize(
    ("expression", "paths"),
    [
        ("steps.a.result[0].x", {("steps", "a", "result")}),
        ("@.steps.a", {("steps", "a")}),
        ("steps.*.result", {("steps",)}),
        ("input.x[?steps.y > `1`].z", {("input", "x")}),
        ("[steps.a.result, gates.b.secret]", {("steps", "a", "result"), ("gates", "b", "secret")}),
        ("{a: steps.a.jobId, b: input}", {("steps", "a", "jobId"), ("input",)}),
        ("sort_by(input.a, &steps.x)", {("input", "a")}),
        ("input.a.b || 'x'", {("input", "a", "b")}),
        ("steps.a.{x: result}", {("steps", "a")}),
        ("input.items[*].steps.a", {("input", "items")}),
        ("steps.a.result | [0].steps", {("steps", "a", "result")}),
        ("[steps.a][0]", {("steps", "a")}),
        ("length(steps.a.result) > `3` && !gates.x", {("steps", "a", "result"), ("gates",)}),
        ("input.a[] | sort(@)", {("input", "a")}),
        ("@", {()}),
        ("`{}`", set()),
    ],
)
def test_paths_are_what_an_expression_reads_of_its_scope(expression: str, paths: set[tuple[str, ...]]) -> None:
    template = json.dumps(f"${{{expression}}}").encode()
    assert next(expressions(template)).paths == paths


PLAIN = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=8,
)


def _escaped(value: Any) -> Any:
    """A template that means the value itself."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


@given(JSON)
def test_any_value_goes_through_a_template_unchanged(value: Any) -> None:
    text = values.dump(value)
    assert render(b'["${input}"]', {"input": value}) == b"[%s]" % text
    assert repr(values.load(render(values.dump(_escaped(value)), {}))) == repr(value)


@pytest.mark.filterwarnings("ignore:deprecated string literal syntax")  # `a` in place of `"a"`, which JMESPath takes
@given(st.lists(st.sampled_from(["$", "{", "}", "${", "$${", "'", '"', "`", "\\", "input", ".", "a"]), max_size=9))
def test_any_string_is_a_template_or_an_error_that_says_so(parts: list[str]) -> None:
    template = "".join(parts)
    try:
        render_text(template, {"input": {"a": 1}})
    except TemplateError as error:
        assert "${" in str(error)  # noqa: PT017  # both outcomes are right
