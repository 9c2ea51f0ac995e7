"""Flows in a configuration: both forms of file, what is left out, the order of steps, and every error with its key."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.api.httpbody_pb2 import HttpBody
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.config.v1.config_pb2 import Config, Flow
from fetchbox.ingest.v1.ingest_service_pb2 import SubmitJobRequest
from flows.definitions.definition import order_of_steps, queue_of, steps_before, with_defaults
from flows.definitions.templates import render
from ingest_svc.reading import read
from kernel.config import loading as configuration
from kernel.config.loading import ConfigError

TOML = """
[tasks.embed]
endpoint = "http://127.0.0.1:1/v1"

[flows.harvest]
id = "order-${input.order}"
output = { stored = "${steps.fetch.result}", approved = "${gates.embed.payload.ok}" }

[flows.harvest.steps.fetch]
job_type = "default"
with = { manifest_version = "v0", resources = [{ name = "a", url = "${input.url}" }] }
allow_partial = true
max_retries = 0
deadline = "1h"

[flows.harvest.steps.ask]
needs = ["fetch"]
handler = "package.module:Ask"
options = { ratio = 0.5, names = ["a"], big = 847458834325543643 }
with = "${gates.embed.secret}"
backoff = { base = "2s" }

[flows.harvest.steps.embed]
needs = ["fetch"]
task = "embed"
with = { input = "${steps.fetch.jobId}", yes = "${gates.embed.payload}" }

[flows.harvest.steps.embed.gate]
reason = "webhook"
channel = "approvals"
key = "order/${input.order}/${flow.id}"

[flows.harvest.steps.pause]
needs = ["ask", "embed"]
gate = { reason = "time", delay = "5m" }
"""

YAML = """
tasks: {embed: {endpoint: "http://127.0.0.1:1/v1"}}
flows:
  harvest:
    id: order-${input.order}
    output: {stored: "${steps.fetch.result}", approved: "${gates.embed.payload.ok}"}
    steps:
      fetch:
        job_type: default
        with:
          manifest_version: v0
          resources:
            - name: a
              url: ${input.url}
        allow_partial: true
        max_retries: 0
        deadline: 1h
      ask:
        needs: [fetch]
        handler: package.module:Ask
        options: {ratio: 0.5, names: [a], big: 847458834325543643}
        with: ${gates.embed.secret}
        backoff: {base: 2s}
      embed:
        needs: [fetch]
        task: embed
        with: {input: "${steps.fetch.jobId}", "yes": "${gates.embed.payload}"}
        gate:
          reason: webhook
          channel: approvals
          key: order/${input.order}/${flow.id}
      pause:
        needs: [ask, embed]
        gate: {reason: time, delay: 5m}
"""


def _load(tmp_path: Path, text: str, name: str = "f.yaml") -> Config:
    path = tmp_path / name
    path.write_text(text)
    return configuration.load(path, {})


def _flow(*steps: tuple[str, list[str]]) -> Flow:
    flow = Flow()
    for key, needs in steps:
        flow.steps[key].needs.extend(needs)
    return flow


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    loaded = _load(tmp_path, TOML, "f.toml")
    assert loaded == _load(tmp_path, YAML)
    steps = loaded.flows["harvest"].steps
    assert json.loads(getattr(steps["fetch"], "with"))["resources"] == [{"name": "a", "url": "${input.url}"}]
    assert json.loads(steps["ask"].options) == {"ratio": 0.5, "names": ["a"], "big": 847458834325543643}
    assert getattr(steps["ask"], "with") == b'"${gates.embed.secret}"'


def test_the_example_of_the_documentation_loads(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/flows.md").read_text()
    example = text.partition("```toml\n")[2].partition("```")[0]
    loaded = _load(tmp_path, example + '[tasks.embed]\nendpoint = "http://127.0.0.1:1/v1"\n', "f.toml")
    flow = loaded.flows["harvest"]
    assert order_of_steps(flow) == ["fetch", "ask", "embed", "night"]
    manifest = render(getattr(flow.steps["fetch"], "with"), {"input": {"order": 7, "url": "https://example.com/"}})
    document = HttpBody(content_type="application/json", data=manifest)
    assert [resource.id for resource in read(SubmitJobRequest(document=document), "identity", loaded.ingest).resources]


def test_the_environment_may_give_flows() -> None:
    text = '{f: {steps: {s: {handler: "x.y:Z", with: {a: [1, "${input}"]}}}}}'
    loaded = configuration.load(None, {"FETCHBOX_FLOWS": text})
    assert json.loads(getattr(loaded.flows["f"].steps["s"], "with")) == {"a": [1, "${input}"]}


def test_what_a_definition_leaves_out_is_filled_in(tmp_path: Path) -> None:
    config = _load(tmp_path, TOML, "f.toml")
    config.worker.max_retries = 3
    flow = with_defaults(config, "harvest")
    fetch, ask, embed, pause = (flow.steps[key] for key in ("fetch", "ask", "embed", "pause"))
    assert (fetch.max_retries, ask.max_retries) == (0, 3)
    assert (fetch.deadline.seconds, ask.deadline.seconds) == (3600, 86_400)
    assert fetch.backoff == config.worker.backoff
    assert (ask.backoff.base.seconds, ask.backoff.max) == (2, config.worker.backoff.max)
    assert (fetch.options, embed.options) == (b"{}", b"{}")
    assert (embed.gate.deadline.seconds, embed.gate.on_timeout, embed.gate.open) == (86_400, "fail", False)
    assert not pause.gate.HasField("deadline")
    assert not pause.HasField("deadline")
    assert not config.flows["harvest"].steps["ask"].HasField("deadline"), "the configuration stays as it is"


def test_the_payload_of_a_step_is_empty_where_it_names_none(tmp_path: Path) -> None:
    config = _load(
        tmp_path, "flows: {f: {steps: {s: {handler: 'x.y:Z', gate: {reason: manual, on_timeout: continue}}}}}"
    )
    step = with_defaults(config, "f").steps["s"]
    assert getattr(step, "with") == b"{}"
    assert step.gate.on_timeout == "continue"


def test_an_unknown_flow_is_a_key_error() -> None:
    config = configuration.defaults()
    with pytest.raises(KeyError):
        with_defaults(config, "none")
    assert not config.flows


def test_timelines_are_kept_as_long_as_runs_where_nothing_else_is_said() -> None:
    engine = configuration.load(None, {"FETCHBOX_FLOW_ENGINE_RETENTION": "5h"}).flow_engine
    assert engine.timeline_retention == engine.retention


def test_steps_stand_behind_what_they_need() -> None:
    flow = _flow(("z", []), ("a", ["z"]), ("m", ["a"]), ("b", ["z"]), ("c", ["m", "b"]))
    assert order_of_steps(flow) == ["z", "a", "b", "m", "c"]
    assert steps_before(flow.steps, "c") == {"z", "a", "m", "b"}
    assert steps_before(flow.steps, "z") == frozenset()


@given(st.data())
def test_any_flow_has_an_order(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, min_size=1, max_size=12))
    steps = []
    for index, name in enumerate(names):
        needs = data.draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        steps.append((name, needs))
    flow = _flow(*data.draw(st.permutations(steps)))
    ordered = order_of_steps(flow)
    assert sorted(ordered) == sorted(names)
    for key in names:
        before = steps_before(flow.steps, key)
        assert before <= set(ordered[: ordered.index(key)])
        assert set(flow.steps[key].needs) <= before
    assert ordered == order_of_steps(Flow.FromString(flow.SerializeToString()))


def test_a_circle_has_no_order() -> None:
    with pytest.raises(ValueError, match="circle"):
        order_of_steps(_flow(("a", ["b"]), ("b", ["a"])))


def test_the_queue_of_a_flow_is_that_of_its_first_work(tmp_path: Path) -> None:
    assert queue_of(_load(tmp_path, TOML, "f.toml").flows["harvest"]) == "jobs.tasks"
    assert queue_of(_load(tmp_path, "flows: {f: {steps: {s: {handler: 'x.y:Z'}}}}").flows["f"]) == "jobs:stream"
    assert queue_of(_load(tmp_path, "flows: {f: {steps: {s: {gate: {reason: manual}}}}}").flows["f"]) == ""


WORK = {"handler": "x.y:Z"}
MANUAL = {"reason": "manual"}
HOOK = {"reason": "webhook", "channel": "c"}


@pytest.mark.parametrize(
    ("flow", "key", "told"),
    [
        ({"steps": {}}, "steps", "at least 1"),
        ({"steps": {"a b": WORK}}, "steps.a b", "pattern"),
        ({"steps": {"s": {**WORK, "wth": 1}}}, "steps.s.wth", "not a known key"),
        ({"steps": {"s": {**WORK, "needs": ["gone"]}}}, "steps.s.needs", "'gone', which is no step"),
        ({"steps": {"s": {**WORK, "needs": ["s"]}}}, "steps.s.needs", "circle: s -> s"),
        (
            {"steps": {"d": {**WORK, "needs": ["a"]}, "a": {**WORK, "needs": ["b"]}, "b": {**WORK, "needs": ["a"]}}},
            "steps.a.needs",
            "circle: a -> b -> a",
        ),
        ({"steps": {"s": {}}}, "steps.s", "nothing to do"),
        ({"steps": {"s": {"handler": "x.y:Z", "job_type": "default"}}}, "steps.s", "handler and job_type"),
        ({"steps": {"s": {"task": "embed"}}}, "steps.s.task", "not configured"),
        ({"steps": {"s": {"task": "sing"}}}, "steps.s.task", "must be in list"),
        ({"steps": {"s": {"job_type": "gone"}}}, "steps.s.job_type", "not under [job_types]"),
        ({"steps": {"s": {"job_type": "default", "options": {"a": 1}}}}, "steps.s.options", "with a handler"),
        ({"steps": {"s": {**WORK, "options": [1]}}}, "steps.s.options", "must be a table"),
        ({"steps": {"s": {**WORK, "allow_partial": True}}}, "steps.s.allow_partial", "with a job_type"),
        ({"steps": {"s": {**WORK, "max_retries": -1}}}, "steps.s.max_retries", "greater than or equal to 0"),
        ({"steps": {"s": {**WORK, "backoff": {"base": "1h"}}}}, "steps.s.backoff.base", "not be longer"),
        ({"steps": {"s": {**WORK, "deadline": "0s"}}}, "steps.s.deadline", "greater than"),
        ({"steps": {"s": {"gate": MANUAL, "with": {}}}}, "steps.s.with", "only waits"),
        ({"steps": {"s": {"gate": MANUAL, "max_retries": 0}}}, "steps.s.max_retries", "only waits"),
        ({"steps": {"s": {"gate": MANUAL, "deadline": "1h"}}}, "steps.s.deadline", "only waits"),
        ({"steps": {"s": {"gate": {}}}}, "steps.s.gate.reason", "must be in list"),
        ({"steps": {"s": {"gate": {"reason": "hope"}}}}, "steps.s.gate.reason", "must be in list"),
        ({"steps": {"s": {"gate": {"reason": "time"}}}}, "steps.s.gate", "needs a delay"),
        (
            {"steps": {"s": {"gate": {"reason": "time", "delay": "1s", "until": "2030-01-01T00:00:00Z"}}}},
            "steps.s.gate",
            "has delay and until",
        ),
        ({"steps": {"s": {"gate": {"reason": "time", "until": "soon"}}}}, "steps.s.gate.until", "no ISO 8601 time"),
        (
            {"steps": {"s": {"gate": {"reason": "time", "until": "2030-01-01T00:00:00"}}}},
            "steps.s.gate.until",
            "no ISO 8601 time",
        ),
        (
            {"steps": {"s": {"gate": {"reason": "time", "delay": "1s", "deadline": "1s"}}}},
            "steps.s.gate.deadline",
            "not for a gate",
        ),
        ({"steps": {"s": {"gate": {**MANUAL, "channel": "c"}}}}, "steps.s.gate.channel", "not for a gate"),
        ({"steps": {"s": {"gate": {**MANUAL, "open": True}}}}, "steps.s.gate.open", "not for a gate"),
        ({"steps": {"s": {"gate": {**HOOK, "delay": "1s"}}}}, "steps.s.gate.delay", "not for a gate"),
        ({"steps": {"s": {"gate": {"reason": "webhook"}}}}, "steps.s.gate.channel", "is required"),
        ({"steps": {"s": {"gate": {"reason": "event"}}}}, "steps.s.gate.channel", "is required"),
        ({"steps": {"s": {"gate": {"reason": "event", "channel": "paid"}}}}, "steps.s.gate.channel", "dot.case"),
        (
            {"steps": {"s": {"gate": {"reason": "event", "channel": "flow.start"}}}},
            "steps.s.gate.channel",
            "FetchBox's own",
        ),
        (
            {"steps": {"s": {"gate": {"reason": "event", "channel": "flow.completed"}}}},
            "steps.s.gate.channel",
            "nobody can publish it",
        ),
        ({"steps": {"s": {"gate": {**HOOK, "channel": "a b"}}}}, "steps.s.gate.channel", "pattern"),
        ({"steps": {"s": {"gate": {**MANUAL, "on_timeout": "hang"}}}}, "steps.s.gate.on_timeout", "must be in list"),
    ],
)
def test_a_wrong_definition_is_fatal_and_its_key_named(
    tmp_path: Path, flow: dict[str, Any], key: str, told: str
) -> None:
    assert (f"flows.f.{key}", told) in _told(tmp_path, flow, told)


@pytest.mark.parametrize(
    ("step", "key", "told"),
    [
        ({"with": "${input.x"}, "steps.s.with", "is not closed"),
        ({"with": {"a": ["x ${input..x}"]}}, "steps.s.with", "Parse error"),
        ({"with": "${input} ${inputs.x}"}, "steps.s.with", "templates see input"),
        ({"with": "${@}"}, "steps.s.with", "templates see input"),
        ({"with": "${flow.tenat}"}, "steps.s.with", "known there: id, name, tenant"),
        ({"with": "${steps.gone.result}"}, "steps.s.with", "'gone', which is no step"),
        ({"with": "${steps.s.result}"}, "steps.s.with", "'s', which does not come before"),
        ({"with": "${steps.last.result}"}, "steps.s.with", "'last', which does not come before"),
        ({"with": "${steps.side.result}"}, "steps.s.with", "'side', which does not come before"),
        ({"with": "${steps.first.results}"}, "steps.s.with", "known there: result, jobId"),
        ({"with": "${gates.first.payload}"}, "steps.s.with", "'first', which has none"),
        ({"with": "${gates.last.payload}"}, "steps.s.with", "'last', which does not come before"),
        ({"with": "${gates.hook.secret}"}, "steps.s.with", "ended by then"),
        ({"with": "${gates.s.secret}", "gate": MANUAL}, "steps.s.with", "ended by then"),
        ({"with": "${gates.side.secret}"}, "steps.s.with", "not opened by one"),
        ({"gate": {**HOOK, "key": "${gates.last.secret}"}}, "steps.s.gate.key", "only `with` may"),
        ({"gate": {**HOOK, "key": "${gates.s.payload}"}}, "steps.s.gate.key", "does not come before"),
        ({"gate": {"reason": "time", "until": "${steps.s.result}"}}, "steps.s.gate.until", "does not come before"),
        ({"job_type": "default", "handler": "", "with": [1]}, "steps.s.with", "must be a table"),
    ],
)
def test_a_template_that_cannot_be_filled_in_is_found_at_the_start(
    tmp_path: Path, step: dict[str, Any], key: str, told: str
) -> None:
    assert (f"flows.f.{key}", told) in _told(tmp_path, _around({**WORK, "needs": ["first", "hook"], **step}), told)


@pytest.mark.parametrize(
    "step",
    [
        {"with": "${steps.first.result.any.thing[0]}"},
        {"with": {"a": "${steps.*.result}", "b": "${gates.hook}", "c": "${steps.first}"}},
        {"with": "${input[?steps.x]}"},
        {"with": "${gates.last.secret} $${nothing"},
        {"with": "${gates.s.payload}", "gate": MANUAL},
        {"gate": {"reason": "time", "until": "${steps.first.result.at}"}},
        {"gate": {"reason": "time", "until": "2030-01-01T00:00:00+02:00"}},
        {"gate": {"reason": "event", "channel": "order.paid", "key": "${flow.tenant}/${gates.hook.payload.id}"}},
        {"job_type": "default", "handler": "", "with": "${steps.first.result}"},
    ],
)
def test_a_template_may_speak_of_what_came_before(tmp_path: Path, step: dict[str, Any]) -> None:
    assert _told(tmp_path, _around({**WORK, "needs": ["first", "hook"], **step}), "") == []


@pytest.mark.parametrize(
    ("part", "key", "told"),
    [
        ({"id": "a/${input.x}"}, "id", "letters, digits"),
        ({"id": "${flow.id}"}, "id", "known there: name, tenant"),
        ({"id": "${steps.first.result}"}, "id", "does not come before"),
        ({"output": "${gates.last.secret}"}, "output", "only `with` may"),
        ({"output": {"x": "${steps.gone.result}"}}, "output", "no step of this flow"),
    ],
)
def test_the_templates_of_a_run_are_checked_too(tmp_path: Path, part: dict[str, Any], key: str, told: str) -> None:
    assert (f"flows.f.{key}", told) in _told(tmp_path, {**_around(WORK), **part}, told)
    fine = {"id": "${flow.name}-${input.x}_1", "output": ["${steps.last.result}", "${gates.last.payload}"]}
    assert _told(tmp_path, {**_around(WORK), **fine}, "") == []


def _around(step: dict[str, Any]) -> dict[str, Any]:
    """A flow: first, hook -> s -> last, and side beside them."""
    others = {
        "first": WORK,
        "hook": {"gate": HOOK},
        "side": {**WORK, "gate": {"reason": "time", "delay": "1s"}},
        "last": {**WORK, "needs": ["s"], "gate": MANUAL},
    }
    return {"steps": {**others, "s": step}}


def _told(tmp_path: Path, flow: dict[str, Any], told: str) -> list[tuple[str, str]]:
    """The keys that are found to be wrong; `told` in place of a rule that says so."""
    try:
        _load(tmp_path, yaml.safe_dump({"flows": {"f": flow}}))
    except ConfigError as error:
        broken = [(error.key, error.rule), *error.more]
        return [(key, told if told in rule else rule) for key, rule in broken]
    return []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{at: 2030-01-01}", "put it in quotes"),
        ("{on: 1}", "must be a string"),
        ("{a: [{7: x}]}", "must be a string"),
        ("{a: .inf}", "JSON cannot say"),
        ("{a: .nan}", "JSON cannot say"),
    ],
)
def test_what_yaml_says_and_json_cannot_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        _load(tmp_path, f"flows: {{f: {{steps: {{s: {{handler: 'x.y:Z', with: {text}}}}}}}}}")
    assert caught.value.key == "flows.f.steps.s.with"


def test_a_handler_is_not_loaded_with_the_configuration(tmp_path: Path) -> None:
    loaded = _load(tmp_path, "flows: {f: {steps: {s: {handler: 'no_such_package.at_all:Handler'}}}}")
    assert loaded.flows["f"].steps["s"].handler == "no_such_package.at_all:Handler"


def test_every_broken_flow_is_told_at_once(tmp_path: Path) -> None:
    text = "flows: {a: {steps: {s: {needs: [x], handler: 'x.y:Z'}}}, b: {steps: {t: {}}}}"
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert [caught.value.key, *(key for key, _ in caught.value.more)] == ["flows.a.steps.s.needs", "flows.b.steps.t"]
