"""The compiled checks agree with ProtoJSON and protovalidate on any JSON."""

from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from buf.validate import validate_pb2
from fetchbox.flow.v1 import data_pb2, event_pb2
from flows.model.compiled import compiled
from flows.model.kinds import RULES
from kernel.validation import violations
from tests.examples import most

DESCRIPTORS = [
    *(data_pb2.DESCRIPTOR.message_types_by_name[name] for name in sorted({rule.data for rule in RULES.values()})),
    event_pb2.Meta.DESCRIPTOR,
]
EXPRESSIONS = {"until", "channel"}
"""Rules that speak of several fields; they are told once each field is right."""

# No text that ProtoJSON would take for a number, and no whole number with a fraction: there the checks are stricter.
TEXT = st.text("ab-_: é\n", max_size=4) | st.sampled_from(
    ["time", "webhook", "manual", "timeout", "x" * 129, "x" * 300]
)
WHOLE = st.integers(-2, 3) | st.sampled_from([2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63])
ANYTHING = st.recursive(
    st.none() | st.booleans() | WHOLE | st.just(0.5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "status"]), inner, max_size=2),
    max_leaves=4,
)


def _objects(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that are mostly what a message wants, and sometimes not."""
    fields = {field.json_name: _field(field) | _other(field) for field in descriptor.fields}
    unknown = st.dictionaries(st.just("unknownKey"), ANYTHING, max_size=1)
    return st.tuples(st.fixed_dictionaries({}, optional=fields), unknown).map(lambda drawn: {**drawn[0], **drawn[1]})


def _other(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """What a field may be given; the parser of ProtoJSON takes an empty list, or any text, for an empty message."""
    is_message = field.message_type is not None and not field.message_type.full_name.startswith("google.")
    return st.none() | st.booleans() | WHOLE | st.just(0.5) if is_message else ANYTHING


def _field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return st.dictionaries(TEXT, _single(entry.fields_by_name["value"]), max_size=2)
    return st.lists(_single(field), max_size=34) if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        is_ours = field.message_type.full_name.startswith("fetchbox.")
        return _objects(field.message_type) if is_ours else ANYTHING
    choices = {FieldDescriptor.CPPTYPE_STRING: TEXT, FieldDescriptor.CPPTYPE_BOOL: st.booleans()}
    return choices.get(field.cpp_type, WHOLE)


def _judged(descriptor: Descriptor, value: dict[str, Any]) -> list[str] | None:
    """The rules that protovalidate finds broken; None where ProtoJSON takes it for no such message."""
    present = {key: item for key, item in value.items() if item is not None}  # null is no value for FetchBox
    try:
        message = json_format.ParseDict(present, GetMessageClass(descriptor)(), ignore_unknown_fields=True)
    except (json_format.ParseError, TypeError, AttributeError, ValueError):
        return None
    return sorted(violation.rule for violation in violations(message))


@pytest.mark.req("R003-2.3.01", "R003-2.3.17", "R003-2.3.28", "R003-2.3.38", "R003-2.3.41")
@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_the_checks_say_what_protovalidate_says(descriptor: Descriptor) -> None:
    check = compiled(descriptor)

    @settings(max_examples=most(60))
    @given(_objects(descriptor))
    def agree(value: dict[str, Any]) -> None:
        judged, found = _judged(descriptor, value), check(value)
        if judged is None:
            assert any(violation.rule in {"type", "int32.range", "int64.range"} for violation in found), value
        else:
            of_fields = [rule for rule in judged if rule not in EXPRESSIONS]
            assert sorted(violation.rule for violation in found) == (of_fields or judged), value

    agree()


@pytest.mark.parametrize(
    "value", [{"step_key": "s"}, {"stepKey": "s", "backoffMs": "5"}, {"stepKey": "s", "backoffMs": 5.0}]
)
def test_the_looser_forms_of_protojson_are_refused(value: dict[str, Any]) -> None:
    assert _judged(data_pb2.StepScheduled.DESCRIPTOR, value) == []
    assert compiled(data_pb2.StepScheduled.DESCRIPTOR)(value)


def test_a_rule_that_is_not_known_is_an_error_and_no_gap() -> None:
    with pytest.raises(ValueError, match="not known here"):
        compiled(validate_pb2.StringRules.DESCRIPTOR)
    with pytest.raises(ValueError, match="not known here"):
        compiled(event_pb2.Event.DESCRIPTOR)
