"""The OpenAPI document: what the gateway prints and reads is what the document says, for our services and any other."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from fetchbox.ingest.v1 import ingest_service_pb2
from gateway.bootstrap import services
from gateway.codec import Codec
from gateway.openapi import Info, describe
from gateway.openapi.operations import path_of
from gateway.pages import load
from gateway.routes import routes_of
from gateway.template import parse
from tests.examples import most
from tests.gateway.messages import messages
from tests.gateway.support import Rule, add_service

DOCUMENT: dict[str, Any] = json.loads(load()["/openapi.json"].body)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
INFO = Info("Test", "1")


def validator(schema: Mapping[str, Any], document: Mapping[str, Any] = DOCUMENT) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def described(pool: DescriptorPool, rule: Rule) -> dict[str, Any]:
    """The document of a service with one RPC."""
    return describe([add_service(pool, [rule])], descriptor_pb2.FileDescriptorSet(), INFO)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, one) for path, item in DOCUMENT["paths"].items() for method, one in item.items()]


def test_it_is_openapi() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"].startswith("3.1")


def test_each_route_is_an_operation_and_nothing_else_is() -> None:
    routes = {(path_of(route.template), route.http_method) for one in services() for route in routes_of(one)}
    assert {(path, method.upper()) for path, method, _ in operations()} == routes
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)


def test_each_operation_parameter_field_and_type_is_described() -> None:
    for path, _, operation in operations():
        assert operation["summary"], path
        assert operation["description"], path
        assert all(parameter["description"] for parameter in operation["parameters"]), path
    ours = {name: schema for name, schema in SCHEMAS.items() if name not in ("Status", "Problem")}
    undescribed = {
        f"{name}.{key}"
        for name, schema in ours.items()
        for key, field in schema["properties"].items()
        if not field.get("description") and "$ref" not in field
    }
    assert undescribed == set()


def test_what_a_field_must_be_is_the_rule_of_protovalidate() -> None:
    submit = SCHEMAS["Manifest"]
    assert submit["properties"]["manifest_version"]["const"] == "v1"
    assert submit["properties"]["resources"]["minItems"] == 1
    assert submit["required"] == ["manifest_version", "resources"]
    headers = SCHEMAS["Resource"]["properties"]["headers"]
    assert headers["maxProperties"] == 10
    assert headers["propertyNames"]["pattern"].startswith("^[!#$")
    assert SCHEMAS["Resource"]["properties"]["id"] | {"description": ""} == {
        "type": "string",
        "minLength": 1,
        "maxLength": 128,
        "description": "",
    }


def test_success_and_failure_have_their_statuses_and_models() -> None:
    submit = DOCUMENT["paths"]["/jobs"]["post"]
    assert set(submit["responses"]) == {"202", "default"}
    assert submit["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Manifest"}
    error = DOCUMENT["components"]["responses"]["Error"]["content"]
    assert set(error) == {"application/json", "application/problem+json"}


def test_streams_name_the_schema_of_their_events() -> None:
    content = DOCUMENT["paths"]["/v1/jobs/{job_id}/events"]["get"]["responses"]["200"]["content"]
    assert set(content) == {"text/event-stream", "application/x-ndjson", "application/json"}
    assert content["application/x-ndjson"]["x-item-schema"]["$ref"].startswith("#/components/schemas/")
    names = [parameter["name"] for parameter in DOCUMENT["paths"]["/v1/jobs/{job_id}/events"]["get"]["parameters"]]
    assert sorted(names) == ["Last-Event-ID", "job_id", "last_event_id"]


def _answers() -> list[Descriptor]:
    found = {
        route.method.output_type.full_name: route.method.output_type for one in services() for route in routes_of(one)
    }
    return [found[name] for name in sorted(found) if not name.startswith("google.")]


@settings(deadline=None, max_examples=most(150), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_codec_prints_is_what_the_document_says(data: st.DataObject) -> None:
    descriptor = data.draw(st.sampled_from(_answers()))
    document = _document_of_answer(descriptor)
    text = Codec(descriptor_pool.Default()).dumps(data.draw(messages(descriptor)))
    validator(document).validate(orjson.loads(text))


def _document_of_answer(descriptor: Descriptor) -> dict[str, Any]:
    for one in services():
        for route in routes_of(one):
            if route.method.output_type.full_name == descriptor.full_name:
                operation = DOCUMENT["paths"][path_of(route.template)][route.http_method.lower()]
                content = operation["responses"][str(route.rest.success_status or 200)]["content"]
                forms = content.get("application/x-ndjson") or content["application/json"]
                return forms.get("x-item-schema") or forms["schema"]
    raise AssertionError(descriptor.full_name)


@settings(deadline=None, max_examples=most(100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_so_it_is_for_every_kind_of_field(echo_pool: DescriptorPool, data: st.DataObject) -> None:
    thing = echo_pool.FindMessageTypeByName("echo.v1.Thing")
    message = data.draw(messages(thing))
    pool = DescriptorPool()
    for name in ("echo.v1.Thing",):
        _add_with_dependencies(pool, echo_pool.FindMessageTypeByName(name).file)
    rule = Rule("Echo", {"post": "/echo", "body": "*"})
    document = described(pool, rule)
    schema = document["paths"]["/echo"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator(schema, document).validate(orjson.loads(Codec(echo_pool).dumps(message)))


def _add_with_dependencies(pool: DescriptorPool, file: Any) -> None:
    for dependency in file.dependencies:
        _add_with_dependencies(pool, dependency)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    try:
        pool.FindFileByName(proto.name)
    except KeyError:
        pool.Add(proto)


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("/v1/jobs/{job_id}", "/v1/jobs/{job_id}"),
        ("/v1/hooks/{channel}/{key=**}", "/v1/hooks/{channel}/{key}"),
        ("/v1/{name=shelves/*/books/*}:read", "/v1/{name}:read"),
        ("/v1/{a.b}/*", "/v1/{a.b}/*"),
        ("/operators/dlq:replay", "/operators/dlq:replay"),
    ],
)
def test_a_template_becomes_a_path(template: str, path: str) -> None:
    assert path_of(parse(template)) == path


def test_what_the_path_decides_is_no_part_of_query_and_body(pool: DescriptorPool) -> None:
    rule = Rule("Echo", {"post": "/echo/{name}", "body": "inner"})
    operation = described(pool, rule)["paths"]["/echo/{name}"]["post"]
    names = {(parameter["name"], parameter["in"]) for parameter in operation["parameters"]}
    assert ("name", "path") in names
    assert ("name", "query") not in names
    assert not [name for name, place in names if name.startswith("inner") and place == "query"]
    assert ("some_text", "query") in names


def test_a_type_of_requests_and_answers_is_two_components(pool: DescriptorPool) -> None:
    document = described(pool, Rule("Echo", {"post": "/echo", "body": "*"}))
    both = document["components"]["schemas"]
    assert "required" not in both["ThingInput"]
    assert "i32" in both["Thing"]["required"]
    assert both["Thing"]["properties"]["i64"] == {"type": "string", "pattern": "^-?(0|[1-9][0-9]{0,19})$"}
    assert {"type": "integer"} in both["ThingInput"]["properties"]["i64"]["anyOf"]


def test_a_document_made_without_comments_is_valid_too(pool: DescriptorPool) -> None:
    validate(described(pool, Rule("Echo", {"post": "/echo", "body": "*"})))
    assert describe(
        [ingest_service_pb2.DESCRIPTOR.services_by_name["IngestService"]], descriptor_pb2.FileDescriptorSet(), INFO
    )


def test_the_page_needs_no_scripts_and_nothing_from_elsewhere() -> None:
    page = load()["/docs"]
    text = page.body.decode()
    assert "<script" not in text
    assert "http://" not in text.replace("http://127.0.0.1", "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for _, _, operation in operations():
        assert f'id="{operation["operationId"]}"' in text


def test_generated_files_are_those_that_the_wheel_carries() -> None:
    here = Path(__file__).parents[2] / "gen" / "fetchbox"
    assert load()["/openapi.json"].body == (here / "openapi.json").read_bytes()
