"""Whatever happens to a lake: nothing that is to be kept goes, nothing stays that is over, and no reader is harmed."""

from __future__ import annotations

from datetime import date

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.retention.verdicts import RetentionPlan
from pipeline.tables import TASKS
from tests.examples import most
from tests.pipeline.retention_world import DAY_MS, HOUR_MS, START_MS, Row, World, midnight, policy

_TENANTS = ("", "acme", "blue", "zoo")
_KEPT = st.dictionaries(st.sampled_from(["acme", "blue"]), st.sampled_from([2, 3, 6, 9]), max_size=2)


class Retention(RuleBasedStateMachine):
    """Exporters write, also late and again; retention runs, is interrupted, and has another policy the next time."""

    @initialize(tenants=_KEPT)
    def begin(self, tenants: dict[str, float]) -> None:
        self.world = World()
        self.rules = policy(tenants=tenants)
        self.written: dict[Row, date] = {}
        self.dropped: set[Row] = set()
        self.epochs = 1
        self.newest: dict[int, str] = {}
        self.readers: list[tuple[int, list[str]]] = []

    @rule(
        ago=st.sampled_from([0, 0, 0, 1, 2, 30]),
        partition=st.integers(0, 1),
        tenants=st.lists(st.sampled_from(_TENANTS), min_size=1, max_size=3),
    )
    def export(self, ago: int, partition: int, tenants: list[str]) -> None:
        """A segment with entries that came up to 30 hours ago."""
        key = self.world.segment(
            TASKS,
            max(START_MS, self.world.now_ms - ago * HOUR_MS),
            [(tenant, f"{len(self.written)}-{n}") for n, tenant in enumerate(tenants)],
            partition=partition,
        )
        self.newest[partition] = key
        self._note(key)

    @rule(data=st.data())
    def export_again(self, data: st.DataObject) -> None:
        """A new epoch holds once more what the lake has."""
        rows = sorted(row for row, day in self.written.items() if row not in self.dropped and self._age(day) < DAY_MS)
        if rows:
            again = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=3, unique=True))
            day = min(self.written[row] for row in again)
            self.epochs += 1
            rows = [row for row in again if self.written[row] == day]
            self.newest[2] = self.world.segment(TASKS, midnight(day) - 1, rows, partition=2, epoch=self.epochs)

    @rule(hours=st.sampled_from([1, 7, 24, 25, 60, 240]), then=st.booleans())
    def wait(self, hours: int, then: bool) -> None:
        self.world.sleep(hours * HOUR_MS)
        if then:
            self.retain()

    @rule(tenants=_KEPT, days=st.sampled_from([3, 4, 5]))
    def configure(self, tenants: dict[str, float], days: int) -> None:
        """Another policy."""
        self.rules = policy(days=days, tenants=tenants)
        self.retain()

    @rule()
    def plan_to_read(self) -> None:
        """A reader that asks for all days."""
        self.readers.append((self.world.now_ms, self.world.files(TASKS)))

    @rule(steps=st.integers(0, 12))
    def retain_interrupted(self, steps: int) -> None:
        self._judged(self.world.plan(self.rules))
        self.world.do(self.world.plan(self.rules), steps)

    @rule()
    def retain(self) -> None:
        plan = self.world.plan(self.rules)
        self._judged(plan)
        assert plan == self.world.plan(self.rules)
        self.world.do(plan)
        left = self.world.plan(self.rules)  # commits of days that have nothing else any more
        assert (left.compactions, left.retirings) == ((), ())
        assert all(self.world.things[one.info.key].document for one in left.drops)
        self.world.do(left)
        assert self.world.plan(self.rules).empty
        over = {row for row, day in self.written.items() if self._over(row, day) and self._age(day) >= DAY_MS}
        seen = self.world.rows(TASKS)
        assert not seen & over
        self.dropped |= over

    @rule()
    def retain_twice_at_once(self) -> None:
        """Both plan before either has done anything; what one has deleted the other cannot read."""
        one, other = self.world.plan(self.rules), self.world.plan(self.rules)
        self._judged(one)
        self.world.do(one)
        self.world.do(RetentionPlan(other.now_ms, (), other.compactions, other.retirings, ()))

    @invariant()
    def nothing_is_lost(self) -> None:
        kept = {row for row, day in self.written.items() if row not in self.dropped}
        assert self.world.rows(TASKS) >= kept

    @invariant()
    def readers_find_what_counts(self) -> None:
        """Even those that ask for all days, while a run is interrupted."""
        assert set(self.world.files(TASKS)) <= self.world.things.keys()

    @invariant()
    def readers_finish(self) -> None:
        for planned_ms, files in self.readers:
            if self.world.now_ms <= planned_ms + self.rules.raw_keep_ms:
                assert set(files) <= self.world.things.keys()

    @invariant()
    def exporters_go_on(self) -> None:
        """At the end of the newest segment of a partition, which is known only while it is there."""
        assert set(self.newest.values()) <= self.world.things.keys()

    def _note(self, key: str) -> None:
        day = date.fromisoformat(key.split("/day=")[1][:10])
        self.written |= dict.fromkeys(self.world.things[key].rows, day)

    def _judged(self, plan: RetentionPlan) -> None:
        """From now on rows may go whose time is over by this policy, and no others."""
        assert len({one.info.key for one in plan.decisions}) == len(plan.decisions) == len(self.world.things)
        assert all(one.why for one in plan.decisions)
        self.dropped |= {row for row, day in self.written.items() if self._over(row, day)}

    def _age(self, day: date) -> int:
        return self.world.now_ms - midnight(day)

    def _over(self, row: Row, day: date) -> bool:
        rule = self.rules.tables[TASKS.name]
        return self._age(day) >= rule.tenants.get(row[0], rule.retention_ms)


Retention.TestCase.settings = settings(max_examples=most(40), stateful_step_count=20, deadline=None)
TestRetention = Retention.TestCase
