"""Whoever was told to come back at the same time does not come back at the same moment, and never too early."""

import random
from collections import Counter

import pytest
from lane_rig import task

from kernel.queue.files.verdict import judge
from kernel.queue.work.retry import RetryPolicy, RetryRule, spread
from kernel.queue.work.types import Claim, Failure, Outcome

ASKED = (0.05, 0.5, 1.0, 2.0, 30.0, 3600.0)


def _claim() -> Claim:
    one = task("j", 1, 1)
    return Claim(0, "1-1", one.SerializeToString(), one, 1, 0, 0, "", 1, False)


def _stream(failure: Failure, rng: random.Random) -> int:
    policy = RetryPolicy(rng, lambda _: RetryRule(9, 0.01, 0.01))
    return policy.judge(_claim(), failure).delay_ms


def _files(failure: Failure, rng: random.Random) -> int:
    claim = _claim()
    claim.payload = b'{"retries":0}'
    return judge(claim, failure, RetryRule(9, 0.01, 0.01), 0, rng.random()).wait_ms


@pytest.mark.parametrize("delay", [_stream, _files])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("counts", [True, False])
def test_many_retries_of_one_retry_after_are_spread(delay: object, asked: float, counts: bool) -> None:
    assert callable(delay)
    rng = random.Random(7)
    failure: Outcome = Failure("DOWNLOAD_HTTP_503", "busy", retry_after=asked, counts=counts)
    delays = [delay(failure, rng) for _ in range(500)]
    longest = asked + min(max(asked / 4, min(asked, 1.0)), 60.0)
    assert min(delays) >= int(asked * 1000)
    assert max(delays) <= longest * 1000 + 10
    # By chance alone many more than this share a millisecond of 500 only where there are few of them.
    assert max(Counter(delays).values()) <= 500 / min(500, (longest - asked) * 1000) * 5 + 5


def test_a_spread_is_bounded() -> None:
    assert spread(0.0, 1.0) == 0.0
    assert spread(10.0, 0.0) == 10.0
    assert spread(1_000_000.0, 1.0) == 1_000_060.0
