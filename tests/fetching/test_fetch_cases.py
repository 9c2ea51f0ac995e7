"""Every case of tests/cases/fetching.json against the real fetcher, a raw server and a real object store."""

import json
from pathlib import Path

import pytest

from tests.fetching.cases import CASES, body, encoding, headers, names, proxy, redirect, resume, retry, sink, time, tls
from tests.fetching.world import World

AREAS = (body, encoding, headers, names, proxy, redirect, resume, retry, sink, time, tls)
IDS = [entry["id"] for entry in json.loads((Path(__file__).parents[1] / "cases" / "fetching.json").read_text())]


@pytest.mark.req("R001-1.32", "R001-3.07")
@pytest.mark.parametrize("name", IDS)
async def test_case(name: str, world: World) -> None:
    assert name in CASES, f"no function plays {name}"
    await CASES[name](world)


def test_no_function_plays_a_case_that_is_not_in_the_table() -> None:
    assert set(CASES) <= set(IDS)
    assert all(area.__name__.startswith("tests.fetching.cases.") for area in AREAS)
