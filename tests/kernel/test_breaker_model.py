"""Any interleaving of results, questions, probes, operators and clock steps leaves a breaker as its model says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from breaker_rig import TimedBook, config_of
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kernel.breakers.book import BreakerStanding
from kernel.breakers.types import BreakerTerms
from kernel.redis import keys
from kernel.redis.clients import RedisClients
from tests.examples import most

T = TypeVar("T")
NAME = "host:example.org"
BUCKETS, BUCKET, COOLDOWN, LEASE, SAMPLES, THRESHOLD = 10, 10_000, 30_000, 7_000, 4, 0.5
KEPT = 11 * COOLDOWN + BUCKETS * BUCKET
FEW = st.integers(0, 3)
PICK = st.integers(0, 99)


@dataclass
class Model:
    """One breaker in plain words. Times are in ms."""

    now: int = 1_700_000_000_000
    results: list[tuple[int, bool]] = field(default_factory=list)
    until: int | None = None
    since: int = 0
    probe: str = ""
    lapses: int = 0

    @property
    def window(self) -> list[bool]:
        current = self.now // BUCKET
        return [ok for place, ok in self.results if current - BUCKETS < place <= current]

    @property
    def state(self) -> str:
        if self.until is None:
            return "closed"
        return "open" if self.now < min(self.until, self.now + COOLDOWN) else "half_open"

    @property
    def probed(self) -> bool:
        return bool(self.probe) and self.now < min(self.lapses, self.now + LEASE)

    def count(self, successes: int, failures: int) -> bool:
        """Whether this opens it."""
        if self.until is not None:
            return False
        current = self.now // BUCKET
        self.results = [(place, ok) for place, ok in self.results if current - BUCKETS < place <= current]
        self.results += [(current, True)] * successes + [(current, False)] * failures
        window = self.window
        failed = window.count(False)
        if not failed or len(window) < SAMPLES or failed / len(window) < THRESHOLD:
            return False
        self.until, self.since = self.now + COOLDOWN, self.now
        return True

    def ask(self, token: str) -> bool:
        """Whether the caller has the place of the probe."""
        if self.until is None:
            return False
        self.until = min(self.until, self.now + COOLDOWN)
        if self.now < self.until or (self.probed and self.probe != token):
            return False
        self.probe, self.lapses = token, self.now + LEASE
        return True

    def conclude(self, token: str, verdict: str) -> None:
        operator = not token
        if self.until is None and not operator:
            return
        if operator or (token == self.probe and verdict == "close"):
            self.until, self.probe, self.results = None, "", []
        elif token == self.probe:
            self.probe = ""
            if verdict == "open":
                self.until = self.now + COOLDOWN


class Machine(RuleBasedStateMachine):
    """The model beside the real thing."""

    addr = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        config = config_of(self.addr, cooldown=COOLDOWN / 1000, window=BUCKETS * BUCKET / 1000, samples=SAMPLES)
        self.clients = self.run(RedisClients.open(config.redis))
        self.run(self.clients.commands.flushall())
        self.books = [TimedBook(self.clients, BreakerTerms.of(config.circuit_breaker), LEASE) for _ in range(2)]
        self.model = Model()
        self.tokens: list[str] = []
        self.step(0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    def teardown(self) -> None:
        for book in self.books:
            book.close()
        self.run(self.clients.close())
        self.loop.close()

    def told(self, standing: BreakerStanding) -> None:
        assert standing.state == self.model.state
        if standing.state == "open":
            assert self.model.until is not None
            assert standing.wait * 1000 == min(self.model.until - self.model.now, COOLDOWN)

    @rule(ms=st.sampled_from([0, 1, 900, 6_999, 7_000, 9_999, 10_000, 29_999, 30_000, 50_000, 120_000]))
    def wait(self, ms: int) -> None:
        self.step(ms)

    @rule(ms=st.sampled_from([1, 5_000, 60_000, 3_600_000]))
    def clock_goes_back(self, ms: int) -> None:
        self.step(-ms)

    def step(self, ms: int) -> None:
        self.model.now += ms
        self.run(self.books[0].set_time(self.model.now))

    @rule(successes=FEW, failures=FEW, writer=st.integers(0, 1), lost_reply=st.booleans())
    def results(self, successes: int, failures: int, writer: int, lost_reply: bool) -> None:
        call = self.books[writer].result(NAME, successes, failures)
        opens = self.model.count(successes, failures)
        (first,) = self.run(self.books[writer].tell([call]))
        self.told(first)
        assert first.value == opens
        if lost_reply:
            (again,) = self.run(self.books[writer].tell([call]))
            self.told(again)
            assert again.value == 0

    @rule(pick=PICK, fresh=st.booleans())
    def asks(self, pick: int, fresh: bool) -> None:
        if fresh or not self.tokens:
            self.tokens.append(f"token-{len(self.tokens)}")
            token = self.tokens[-1]
        else:
            token = self.tokens[pick % len(self.tokens)]
        granted = self.model.ask(token)
        (standing,) = self.run(self.books[0].tell([self.books[0].ask(NAME, token)]))
        self.told(standing)
        assert standing.value == granted

    @rule(pick=PICK, verdict=st.sampled_from(["close", "open", "free"]), lost_reply=st.booleans())
    def probe_tells(self, pick: int, verdict: str, lost_reply: bool) -> None:
        if not self.tokens:
            return
        current = self.model.probe if pick % 2 else ""
        token = current or self.tokens[pick % len(self.tokens)]
        self.model.conclude(token, verdict)
        for _ in range(1 + lost_reply):
            (standing,) = self.run(self.books[0].tell([self.books[0].verdict(NAME, token, verdict)]))
            self.told(standing)

    @rule()
    def operator_resets(self) -> None:
        self.model.conclude("", "close")
        (standing,) = self.run(self.books[0].tell([self.books[0].verdict(NAME, "", "close")]))
        self.told(standing)

    @invariant()
    def the_breaker_is_as_its_model(self) -> None:
        (seen,) = self.run(self.books[0].states([NAME]))
        window = self.model.window
        assert (seen.state, seen.samples, seen.failures) == (self.model.state, len(window), window.count(False))

    @invariant()
    def whoever_looks_sees_what_is_not_closed(self) -> None:
        shut = self.run(self.books[1].shut())
        assert set(shut) == ({NAME} if self.model.until is not None else set())
        half_open, is_open = self.run(self.books[1].counts())
        remembered = self.model.until is not None and self.model.until >= self.model.now - KEPT
        assert half_open + is_open == remembered

    @invariant()
    def nothing_piles_up(self) -> None:
        assert self.run(self.clients.commands.hlen(keys.breaker(NAME))) <= 2 * BUCKETS + 2 + 4


@pytest.mark.req("R002-breaker.01", "R002-breaker.02", "R002-breaker.03", "R002-breaker.04", "R002-breaker.05")
@pytest.mark.req("R002-breaker.06")
def test_a_breaker_is_as_its_model(redis_server: str) -> None:
    machine = type("Here", (Machine,), {"addr": redis_server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=most(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
