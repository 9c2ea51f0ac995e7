"""The names that others rely on are those of the contract, letter by letter; no two things share a name."""

import inspect
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.redis import keys

HOSTILE = ("", "a", "b", "a:b", "b:a", ":", "a:", ":a", "a::b", "%", "%3A", "a%3Ab", "a.b", "a/b", "a}", "{a}", "free")
"""Parts with what separates parts, encodes them, or ends a key."""
NUMBERS = (0, 1, 12)
OF_CONFIGURATION = {"of_worker"}
"""Functions of a pattern that the configuration gives whole: one a deployment, and no part of a name."""
PARTS = {"part"}
"""What is no key by itself."""
BEGINNINGS = {"FLOW", "GATE_PARKED"}
"""Constants that are what names begin with."""
CONSUMERS = {"routed", "solo"}
"""Names of consumers within a group."""


def _functions() -> dict[str, Callable[..., str]]:
    """Every function that makes a name, those that are still to be written too."""
    return {
        name: function
        for name, function in inspect.getmembers(keys, inspect.isfunction)
        if function.__module__ == keys.__name__
        and not name.startswith("_")
        and inspect.signature(function).return_annotation in (str, keys.RunKey)
        and name not in OF_CONFIGURATION | PARTS
    }


def _values(parameter: inspect.Parameter) -> tuple[Any, ...]:
    if parameter.annotation is int:
        return NUMBERS
    if parameter.annotation is keys.RunKey:
        runs = product(("", "a", "a:b", "%3A"), ("", "a", "b", "a:b", ":b", "%"))
        return tuple(dict.fromkeys(keys.run(tenant, flow_id) for tenant, flow_id in runs))
    assert parameter.annotation is str, f"{parameter} is of no kind that this test knows: say here what it may be"
    return HOSTILE


def _made(name: str, function: Callable[..., str]) -> dict[tuple[Any, ...], str]:
    """What a function gives, by its arguments."""
    parameters = inspect.signature(function).parameters.values()
    if name == "partition_of":
        return {}
    return {parts: function(*parts) for parts in product(*map(_values, parameters))}


@pytest.mark.req("R004-goal.03", "R004-queue.01", "R004-queue.03", "R004-state.01", "R004-events.01", "R004-post.10")
def test_what_seed_004_names_has_its_names() -> None:
    assert keys.QUEUE == "jobs:stream"
    assert keys.GROUP_WORKERS == "workers"
    assert keys.job("0190") == "job:0190"
    assert keys.job_events("0190") == "job:0190:events"
    assert keys.task_idempotency("", "k") == "idempotency:k"
    assert keys.task_idempotency("", "order:7%") == "idempotency:order:7%"


def test_what_seed_003_names_has_its_names() -> None:
    run = keys.run("", "6d1a")
    assert keys.flow_timeline(run) == "nq:flow:6d1a"
    assert keys.flow_snapshot("harvest", run) == "nq:proj:flow:harvest:6d1a"
    assert keys.flow_steps(run) == "nq:proj:flow-steps:6d1a"
    assert keys.flow_runs("harvest") == "nq:proj:flow-runs:harvest"
    assert keys.flow_logs(run) == "nq:proj:flow-step-index:6d1a"
    assert keys.flow_early(run) == "fetchbox:flows:early:6d1a"
    assert keys.flow_timeline(keys.run("alpha", "6d1a")) == "nq:flow:alpha:6d1a"


@pytest.mark.parametrize("name", _functions())
def test_no_two_tuples_of_parts_share_a_key(name: str) -> None:
    made = _made(name, _functions()[name])
    shared = {key for key, count in Counter(made.values()).items() if count > 1}
    assert not shared, {parts: key for parts, key in made.items() if key in shared}


def test_no_two_functions_share_a_key() -> None:
    """Constants count too. Those that are given whole names, as lists and lanes, give one each for every such name."""
    owners: dict[str, set[str]] = {}
    for name, function in _functions().items():
        for key in set(_made(name, function).values()) if name not in CONSUMERS | {"run"} else ():
            owners.setdefault(key, set()).add(name)
    for name, value in vars(keys).items():
        if name.isupper() and isinstance(value, str) and value and not name.startswith("_") and name not in BEGINNINGS:
            owners.setdefault(value, set()).add(name)
    assert {key: names for key, names in owners.items() if len(names) > 1} == {}


@given(st.lists(st.tuples(st.text(), st.text(min_size=1), st.text()), min_size=2, max_size=2, unique=True))
def test_parts_of_any_text_are_told_apart(pair: list[tuple[str, str, str]]) -> None:
    first, second = (keys.manifest_idempotency(*parts) for parts in pair)
    assert first != second
    runs = {(tenant, flow_id): keys.run(tenant, flow_id) for tenant, flow_id, _ in pair}
    assert len(set(runs.values())) == len(runs)
    assert all(keys.run_parts(run) == parts for parts, run in runs.items())


def test_what_has_no_tenant_is_never_a_tenants() -> None:
    """Whatever key or id a caller without a tenant chooses."""
    for tenant, other in product(HOSTILE[1:], HOSTILE):
        for literal in (*HOSTILE, f"{tenant}:{other}", keys.run(tenant, other)):
            assert keys.task_idempotency(tenant, other) != keys.task_idempotency("", literal)
            assert keys.run(tenant, other) != keys.run("", literal)


def test_what_is_ours_beside_the_queue_is_in_its_cluster_slot() -> None:
    """The tag of the side keys is the name of the stream."""
    side = (keys.outbox, keys.redo, keys.delayed, keys.lease, keys.replays)
    for name in (keys.open_tasks(), *(key(keys.QUEUE) for key in side)):
        assert name.startswith("{jobs:stream}:"), name
