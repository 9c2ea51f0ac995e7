"""The names that others rely on are those of the contract, letter by letter."""

import pytest

from kernel import keys


@pytest.mark.req("R004-goal.03", "R004-queue.01", "R004-queue.03", "R004-state.01", "R004-events.01", "R004-post.10")
def test_what_seed_004_names_has_its_names() -> None:
    assert keys.QUEUE == "jobs:stream"
    assert keys.GROUP_WORKERS == "workers"
    assert keys.job("0190") == "job:0190"
    assert keys.job_events("0190") == "job:0190:events"
    assert keys.task_idempotency("", "k") == "idempotency:k"


def test_what_is_ours_beside_the_queue_is_in_its_cluster_slot() -> None:
    """The tag of the side keys is the name of the stream."""
    side = (keys.outbox, keys.redo, keys.delayed, keys.lease, keys.replays)
    for name in (keys.open_tasks(), *(key(keys.QUEUE) for key in side)):
        assert name.startswith("{jobs:stream}:"), name
