"""Every case of `tests/cases/transcoding.json` that a program can judge, against a real gateway."""

import json
from typing import Any

import pytest

from tests.gateway.transcoding.files import TABLE, descriptor_set
from tests.gateway.transcoding.runner import Runner

CASES = json.loads(TABLE.read_text())


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(descriptor_set())


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_the_gateway_does_what_the_case_expects(case: dict[str, Any], runner: Runner) -> None:
    verdict = await runner.run(case)
    if verdict.failed is None:
        pytest.skip("a person has to judge this one, or a test of its own does")
    assert not verdict.failed, verdict.seen
