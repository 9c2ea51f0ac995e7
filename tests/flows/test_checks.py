"""What may be stored: each kind's data and meta as section 2.3 of seed 003 has them, the envelope, and its size."""

from typing import Any

import pytest

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import codec
from flows.model.checks import check
from flows.model.events import draft
from flows.model.kinds import RULES
from kernel.errors import FetchboxError
from tests.flows.examples import EXAMPLES

MAX = 65_536
T = "2025-10-28T12:30:00.000Z"
RUN = {"flowId": "6d1a0c52"}
STEP = {**RUN, "stepKey": "s"}
ATTEMPT = {**STEP, "stepRunId": "r", "attempt": 1}
ANY = {"any": [1, None]}

# Kind -> data that must be there, data that may be, meta that must be there.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "flow.start": ({"flowName": "f"}, {}, RUN),
    "flow.complete": ({}, {"resultKey": "flows/x"}, RUN),
    "flow.failed": ({}, {"stepKey": "s"}, RUN),
    "flow.cancelled": ({}, {"reason": "no"}, RUN),
    "step.scheduled": ({"stepKey": "s"}, {"reason": "why", "backoffMs": 5}, STEP),
    "step.attempt.started": ({"stepKey": "s"}, {}, ATTEMPT),
    "step.attempt.completed": ({"stepKey": "s"}, {}, ATTEMPT),
    "step.attempt.failed": ({"stepKey": "s", "error": ANY}, {}, ATTEMPT),
    "step.retry.scheduled": ({"stepKey": "s"}, {"reason": "HANDLER_ERROR", "backoffMs": 500}, STEP),
    "step.completed": ({"stepKey": "s"}, {"resultKey": "flows/x"}, STEP),
    "step.failed": ({"stepKey": "s", "error": ANY}, {}, STEP),
    "runner.log": ({"level": "info"}, {"msg": "hello", "meta": {"progress": 1}}, RUN),
    "step.await.scheduled": (
        {"stepKey": "s", "reason": "manual", "token": "t"},
        {"until": T, "channel": "c", "key": "order/123"},
        RUN,
    ),
    "step.await.triggered": ({"stepKey": "s", "by": "event", "token": "t"}, {"payloadKey": "flows/x"}, RUN),
    "step.await.timeout": ({"stepKey": "s", "token": "t"}, {"elapsedMs": 7}, RUN),
    "step.await.cancelled": ({"stepKey": "s", "token": "t"}, {}, RUN),
    "flow.snapshot.patch": (
        {},
        {
            **dict.fromkeys(("flowName", "flowId", "queue", "status", "lastLogLevel", "waitToken", "waitStep"), "x"),
            **dict.fromkeys(("startedAt", "completedAt", "lastEventAt", "waitUntil"), T),
            "logsCountDelta": 2,
            "waitingFor": "webhook",
            "steps": {"s": {"triesCount": 1, "lastAttempt": 1, "status": "running"}},
        },
        {},
    ),
    "flow.step.patch": (
        {"stepKey": "s"},
        {
            **dict.fromkeys(("status", "lastLogLevel", "lastAttemptStatus", "waitToken"), "x"),
            **dict.fromkeys(("startedAt", "completedAt", "lastEventAt", "waitUntil"), T),
            **dict.fromkeys(("logsCountDelta", "triesCountDelta", "attempt"), 1),
            "waiting": True,
            "waitingFor": "time",
        },
        {},
    ),
    "flow.run.indexed": ({"id": "6d1a", "flowName": "f", "createdAt": T, "sourceId": "1-0"}, {"queue": "q"}, {}),
    "flow.step.log.ref": (
        {"stepKey": "s", "ref": {"stream": "nq:flow:6d1a", "id": "1-5"}},
        {"attempt": 1, "level": "info", "ts": T},
        {},
    ),
}


def _paths(event: Event, max_bytes: int = MAX) -> list[str]:
    """The places that are wrong."""
    try:
        check(event, max_bytes)
    except FetchboxError as error:
        return [violation.field for violation in error.violations]
    return []


def _data(kind: str, data: Any) -> list[str]:
    return _paths(draft(kind, codec.values.dump(data), SHAPES[kind][2]))


@pytest.mark.req(
    "R003-1.2.12", "R003-1.2.14", "R003-1.2.15", "R003-1.2.17", "R003-2.2.04", "R003-1.1.11", "R003-1.1.13",
    "R003-2.3.01", "R003-2.3.02", "R003-2.3.03", "R003-2.3.04", "R003-2.3.05", "R003-2.3.06", "R003-2.3.07",
    "R003-2.3.08", "R003-2.3.09", "R003-2.3.10", "R003-2.3.11", "R003-2.3.12", "R003-2.3.13", "R003-2.3.14",
    "R003-2.3.15", "R003-2.3.16", "R003-2.3.17", "R003-2.3.18", "R003-2.3.19", "R003-2.3.20", "R003-2.3.21",
    "R003-2.3.22", "R003-2.3.23", "R003-2.3.24", "R003-2.3.25", "R003-2.3.26", "R003-2.3.27", "R003-2.3.28",
    "R003-2.3.29", "R003-2.3.30", "R003-2.3.31", "R003-2.3.32", "R003-2.3.33", "R003-2.3.34", "R003-2.3.35",
    "R003-2.3.36", "R003-2.3.37", "R003-2.3.38", "R003-2.3.39", "R003-2.3.40", "R003-2.3.41", "R003-2.3.42",
    "R003-2.3.43", "R003-2.3.44",
)  # fmt: skip
@pytest.mark.parametrize("kind", RULES)
def test_a_kind_is_taken_with_what_it_must_and_may_have(kind: str) -> None:
    required, optional, meta = SHAPES[kind]
    assert _paths(draft(kind, required, meta)) == []
    assert _paths(draft(kind, {**required, **optional, "own": ANY}, {**meta, "own": ANY}, "example_queue")) == []


@pytest.mark.req(
    "R003-1.2.12", "R003-1.2.14", "R003-1.2.15", "R003-1.2.17", "R003-2.2.04", "R003-1.1.11", "R003-1.1.13",
    "R003-2.3.01", "R003-2.3.04", "R003-2.3.05", "R003-2.3.06", "R003-2.3.07", "R003-2.3.08", "R003-2.3.09",
    "R003-2.3.10", "R003-2.3.11", "R003-2.3.13", "R003-2.3.14", "R003-2.3.15", "R003-2.3.16", "R003-2.3.28",
    "R003-2.3.38", "R003-2.3.39", "R003-2.3.40", "R003-2.3.41", "R003-2.3.42",
)  # fmt: skip
@pytest.mark.parametrize("kind", RULES)
def test_a_kind_is_refused_without_what_it_must_have(kind: str) -> None:
    required, _, meta = SHAPES[kind]
    for key in required:
        without = {name: value for name, value in required.items() if name != key}
        assert _data(kind, without) == [f"data.{key}"]
        assert _data(kind, {**without, key: None}) == [f"data.{key}"]
    for key in meta:
        without = {name: value for name, value in meta.items() if name != key}
        assert _paths(draft(kind, required, without)) == [f"meta.{key}"]


@pytest.mark.req(
    "R003-2.3.18", "R003-2.3.19", "R003-2.3.20", "R003-2.3.21", "R003-2.3.22", "R003-2.3.23", "R003-2.3.24",
    "R003-2.3.25", "R003-2.3.26", "R003-2.3.27", "R003-2.3.28", "R003-2.3.29", "R003-2.3.30", "R003-2.3.31",
    "R003-2.3.32", "R003-2.3.33", "R003-2.3.34", "R003-2.3.35", "R003-2.3.36", "R003-2.3.37", "R003-2.3.38",
    "R003-2.3.39", "R003-2.3.40", "R003-2.3.41", "R003-2.3.42", "R003-2.3.43", "R003-2.3.44",
)  # fmt: skip
@pytest.mark.parametrize("kind", RULES)
def test_a_kind_is_refused_with_a_value_of_another_type(kind: str) -> None:
    required, optional, _ = SHAPES[kind]
    for key, value in {**required, **optional}.items():
        if key == "error":
            continue
        for wrong in (1.5, [], "text" if not isinstance(value, str) else 7):
            assert _data(kind, {**required, key: wrong}) == [f"data.{key}"], wrong
    for wrong in ([], "x", 7):
        assert _data(kind, wrong) == ["data"]


@pytest.mark.req("R003-2.3.03", "R003-1.1.09")
def test_the_data_of_a_completed_flow_is_free_and_may_be_absent() -> None:
    assert _paths(draft("flow.complete", None, RUN)) == []
    assert _paths(draft("flow.complete", {"any": "thing", "result": [1]}, RUN)) == []


@pytest.mark.req("R003-1.2.06", "R003-1.2.07")
@pytest.mark.parametrize("error", [{"code": "X", "message": "y"}, "text", 7, [], False])
def test_an_error_is_any_json_but_null(error: object) -> None:
    assert _data("step.failed", {"stepKey": "s", "error": error}) == []


@pytest.mark.req("R003-1.2.12", "R003-1.2.13", "R003-1.2.14", "R003-1.2.17")
@pytest.mark.parametrize(
    ("kind", "data", "path"),
    [
        ("step.await.scheduled", {"reason": "time", "until": T}, ""),
        ("step.await.scheduled", {"reason": "time"}, "data"),
        ("step.await.scheduled", {"reason": "webhook", "channel": "c"}, ""),
        ("step.await.scheduled", {"reason": "webhook", "key": "k"}, "data"),
        ("step.await.scheduled", {"reason": "event"}, "data"),
        ("step.await.scheduled", {"reason": "manual"}, ""),
        ("step.await.scheduled", {"reason": "hope"}, "data.reason"),
        ("step.await.triggered", {"by": "timeout"}, ""),
        ("step.await.triggered", {"by": "time"}, "data.by"),
        ("step.await.timeout", {"elapsedMs": -1}, "data.elapsedMs"),
    ],
)
def test_gates_say_what_they_wait_for(kind: str, data: dict[str, Any], path: str) -> None:
    assert _data(kind, {"stepKey": "s", "token": "t", **data}) == ([path] if path else [])


@pytest.mark.req("R003-2.3.18", "R003-2.3.22", "R003-2.3.24", "R003-2.3.29", "R003-2.3.34", "R003-2.3.36")
def test_words_are_free_where_the_seed_lets_them_be() -> None:
    for kind, words in (
        ("flow.snapshot.patch", ("status", "lastLogLevel")),
        ("flow.step.patch", ("status", "lastLogLevel", "lastAttemptStatus")),
    ):
        for word in words:
            assert _data(kind, {**SHAPES[kind][0], word: "another word"}) == []
        assert _data(kind, {**SHAPES[kind][0], "waitingFor": "another word"}) == ["data.waitingFor"]
        assert _data(kind, {**SHAPES[kind][0], "waitingFor": None}) == []


@pytest.mark.req(
    "R003-1.1.11", "R003-1.1.12", "R003-1.1.13", "R003-1.1.14", "R003-1.1.15", "R003-1.1.16", "R003-1.1.10"
)
@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("flowId", "a b", "flowId"),
        ("flowId", "a:b", "flowId"),
        ("flowId", "", "flowId"),
        ("flowId", 7, "flowId"),
        ("flowName", "a:b", "flowName"),
        ("flowName", "a b", "flowName"),
        ("stepKey", ["s"], "stepKey"),
        ("stepRunId", 1, "stepRunId"),
        ("attempt", 0, "attempt"),
        ("attempt", "1", "attempt"),
        ("attempt", 1.5, "attempt"),
        ("attempt", True, "attempt"),
        ("attempt", 1, ""),
        ("jobId", {}, "jobId"),
        ("queue", 7, "queue"),
        ("queue", "jobs:stream", ""),
        ("tags", ["a", "b"], ""),
        ("tags", "a", "tags"),
        ("tags", ["a", 1], "tags[1]"),
        ("tags", ["x"] * 33, "tags"),
        ("own", {"free": [1]}, ""),
        ("traceId", "x", "traceId"),
        ("stepId", "x", "stepId"),
    ],
)
@pytest.mark.parametrize("kind", ["runner.log", "own.kind"])
def test_reserved_keys_of_meta_are_well_typed_and_others_free(kind: str, key: str, value: Any, path: str) -> None:
    event = draft(kind, {"level": "info"}, {**RUN, key: value})
    assert _paths(event) == ([f"meta.{path}"] if path else [])


@pytest.mark.req("R003-2.1.06", "R003-2.1.07")
@pytest.mark.parametrize("name", ["a:b", "a b", "", "x" * 129, "é", "a\n", "*"])
def test_a_name_that_becomes_part_of_a_stream_name_has_its_form(name: str) -> None:
    assert _paths(draft("flow.start", {"flowName": name}, RUN)) == ["data.flowName"]
    assert _paths(draft("flow.start", {"flowName": "f"}, {"flowId": name})) == ["meta.flowId"]
    assert _paths(draft("flow.start", {"flowName": "f"}, {**RUN, "flowName": name})) == ["meta.flowName"]
    index = {**SHAPES["flow.run.indexed"][0]}
    assert _paths(draft("flow.run.indexed", {**index, "id": name, "flowName": name})) == ["data.id", "data.flowName"]
    assert _paths(draft("flow.start", {"flowName": "ok_a-B9"}, {"flowId": "ok_a-B9"})) == []


@pytest.mark.req("R003-5.01")
@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("key", ["traceId", "stepId"])
def test_the_old_identity_fields_are_refused(kind: str, key: str) -> None:
    required, _, meta = SHAPES[kind]
    assert _paths(draft(kind, {**required, key: "x"}, meta)) == [f"data.{key}"]
    assert _paths(draft(kind, required, {**meta, key: "x"})) == [f"meta.{key}"]


def test_data_and_meta_mean_one_step() -> None:
    assert _paths(draft("step.scheduled", {"stepKey": "other"}, STEP)) == ["data.stepKey"]
    assert _paths(draft("step.await.cancelled", {"stepKey": "other", "token": "t"}, STEP)) == ["data.stepKey"]


@pytest.mark.req("R003-1.1.06", "R003-1.1.07", "R003-1.1.08", "R003-1.1.17", "R003-1.1.03", "R003-1.1.04")
@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("kind", "", "kind"),
        ("kind", "log", "kind"),
        ("kind", "Flow.Start", "kind"),
        ("kind", "flow..start", "kind"),
        ("kind", "flow start", "kind"),
        ("kind", f"a.{'b' * 127}", "kind"),
        ("kind", "order.paid", ""),
        ("subject", "x" * 257, "subject"),
        ("subject", "example_queue", ""),
        ("v", 2, "v"),
        ("id", "1-0", "id"),
        ("stream", "nq:flow:x", "stream"),
        ("ts", T, ""),
        ("data", b"{", "data"),
        ("data", b"NaN", "data"),
        ("data", b"{} {}", "data"),
        ("data", b'"\xff"', "data"),
        ("data", b"[1, 2]", ""),
        ("data", b"1e400", ""),
        ("data", b'"\\ud800"', ""),
        ("meta", b"{", "meta"),
        ("meta", b"[]", "meta"),
        ("meta", b'"x"', "meta"),
    ],
)
def test_the_envelope(field: str, value: Any, path: str) -> None:
    event = draft("own.kind", b"{}", {})
    setattr(event, field, value)
    assert _paths(event) == ([path] if path else [])


@pytest.mark.req("R003-1.1.01")
def test_what_cannot_be_written_as_json_is_refused() -> None:
    with pytest.raises(ValueError, match="no JSON form"):
        draft("own.kind", {"x": object()})


@pytest.mark.req("R003-1.1.18", "R003-1.1.19")
@pytest.mark.parametrize("max_bytes", [MAX, 1024, 200_000])
def test_a_message_of_the_limit_is_refused_and_one_byte_less_is_taken(max_bytes: int) -> None:
    event = draft("runner.log", {"level": "info", "msg": ""}, RUN, "example_queue")
    missing = max_bytes - codec.size(event, "")
    event.data = event.data.replace(b'"msg":""', b'"msg":"%s"' % (b"x" * missing))
    assert codec.size(event, "") == max_bytes
    assert _paths(event, max_bytes) == ["event"]
    assert _paths(event, max_bytes + 1) == []
    event.data = event.data.replace(b"xx", b"x", 1)
    assert _paths(event, max_bytes) == []


@pytest.mark.req("R003-1.1.18")
def test_no_small_event_with_large_texts_slips_through() -> None:
    event = draft("own.kind", b'"%s"' % (b"x" * 60_000), {}, "s" * 10_000)
    assert _paths(event) != []


@pytest.mark.req(
    "R003-4.1.01", "R003-4.2.01", "R003-4.2.02", "R003-4.2.03", "R003-4.2.04", "R003-4.2.05", "R003-4.2.07"
)
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "3.2 canonical"])
def test_the_examples_of_the_seed_may_be_stored(name: str) -> None:
    event = codec.from_json(EXAMPLES[name])
    event.ClearField("id")
    event.ClearField("stream")
    assert _paths(event) == []


@pytest.mark.req("R003-2.3.06")
def test_the_example_that_lacks_the_id_of_its_attempt_is_refused() -> None:
    """Section 3.2 of the seed leaves out `stepRunId`, which its section 2.3 requires: the latter holds."""
    event = codec.from_json(EXAMPLES["3.2 canonical"])
    event.ClearField("id")
    event.ClearField("stream")
    assert _paths(event) == ["meta.stepRunId"]


def test_every_broken_rule_is_told_at_once() -> None:
    event = draft("step.attempt.failed", {"stepKey": 7}, {"attempt": 0}, "x" * 300)
    found = _paths(event)
    expected = [
        "subject",
        "meta.flowId",
        "meta.stepKey",
        "meta.stepRunId",
        "meta.attempt",
        "data.stepKey",
        "data.error",
    ]
    assert found == expected
