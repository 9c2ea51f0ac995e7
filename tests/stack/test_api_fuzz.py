"""Schemathesis against a running platform: no request makes it fail, and no answer leaves its schema."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks

from cli.local import LocalPlatform
from gateway.pages import load
from tests.stack.conftest import ENVIRON

pytestmark = pytest.mark.long
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def _never_ends(operation: Any) -> bool:
    """Streams have tests of their own; a drained worker answers no more."""
    content = operation.definition.raw["responses"].get("200", {}).get("content", {})
    return "text/event-stream" in content or operation.path == "/workers:drain"


api = schemathesis.openapi.from_dict(json.loads(load()["/openapi.json"].body)).exclude(
    lambda context: _never_ends(context.operation)
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A platform of its own: what is fuzzed here pauses workers and purges dead letters."""
    with LocalPlatform(tmp_path_factory.mktemp("fuzzed"), any_ports=True, environ=ENVIRON) as platform:
        yield f"http://{platform.config.gateway.listen}"


@api.parametrize()
@settings(
    max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
def test_no_request_breaks_it_and_no_answer_leaves_its_schema(case: schemathesis.Case, url: str) -> None:
    case.call_and_validate(base_url=url, checks=CHECKS)
