"""One run of retention, from the look at the lake to the record of what was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from fetchbox.config.v1.config_pb2 import Config
from kernel.clock import Clock, SystemClock
from kernel.objects import ObjectStore
from kernel.telemetry.logs import get_logger
from pipeline.extras import require
from pipeline.lake.store import LakeStore
from pipeline.retention.deed import Deed, DeedOutcome
from pipeline.retention.looking import look
from pipeline.retention.planner import plan
from pipeline.retention.policy import Policy
from pipeline.retention.verdicts import Compacting, RetentionPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.retention.compacting import Compactor

T = TypeVar("T")
Step = Callable[[str], None]

_FAST_MS: Final = 60_000

_log = get_logger("retention")


class Retention:
    """A context manager; not within a running event loop, since Spark blocks and its tasks have loops of their own.

    What is over is decided by the earlier one of two clocks: this machine's and that of the object store. A wrong one
    keeps things for too long, but drops nothing. A `clock` that is given is believed instead.
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._is_told = clock is not None
        self._ahead_ms = 0
        self._objects = ObjectStore(config.object_store)
        self._store = LakeStore(self._objects, config)
        self._deed = Deed(self._store, self._now_ms)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._await(self._objects.close())
        finally:
            self._runner.close()

    def plan(self) -> RetentionPlan:
        """What a run would do now. ObjectStoreError where the store does not answer; nothing is changed."""
        if not self._is_told:
            self._ahead_ms = self._await(self._ahead())
        contents = self._await(look(self._store))
        return plan(contents, Policy.of(self._config.lake), self._now_ms())

    def run(
        self, planned: RetentionPlan, session: Callable[[], SparkSession], step: Step = lambda _: None
    ) -> DeedOutcome:
        """Does what was planned, and writes down what it did.

        `session` starts Spark; it is called only where a day is to be compacted. `step` is told what begins. A
        compaction that fails holds up no other. ObjectStoreError ends the run where the store does not answer, and
        ExtraMissingError or JavaError where Spark cannot be started; what was done until then is in the record.
        """
        outcome = DeedOutcome(planned.now_ms)
        try:
            step("deleting")
            self._await(self._deed.drop(planned, outcome))
            try:
                self._compact(planned, session, step, outcome)
            finally:  # only now: rows whose time is over may still tell whose the log lines of a day are
                self._await(self._deed.retire(planned, outcome))
        finally:
            self._await(self._deed.record(outcome))
        return outcome

    async def _ahead(self) -> int:
        """By how many ms the clock of this machine is ahead of the store's, which tells whole seconds; at least 0."""
        store_ms = await self._objects.now_ms(self._store.bucket)
        ahead = max(0, self._clock.now_ms() - store_ms)
        if ahead > _FAST_MS:
            _log.warn("clock_is_fast", duration_ms=ahead)
        return ahead

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._ahead_ms

    def _compact(
        self, planned: RetentionPlan, session: Callable[[], SparkSession], step: Step, outcome: DeedOutcome
    ) -> None:
        if not planned.compactions:
            return
        require("spark")
        from pipeline.retention.compacting import Compactor  # noqa: PLC0415  # imports an extra

        step("starting Spark")
        compactor = Compactor(session(), self._config)
        for compacting in planned.compactions:
            step(f"compacting {compacting.table}, {compacting.day}")
            self._compact_day(compactor, compacting, outcome)

    def _compact_day(self, compactor: Compactor, compacting: Compacting, outcome: DeedOutcome) -> None:
        from pipeline.lake.errors import LakeFileError  # noqa: PLC0415
        from pipeline.retention.compacting import CompactionError  # noqa: PLC0415  # of an extra
        from pipeline.spark.faults import ReadError, SparkFault, readable  # noqa: PLC0415

        began_ms = self._now_ms()
        try:
            with readable():
                written = compactor.write(compacting)
        except (CompactionError, LakeFileError, ReadError, SparkFault) as error:
            where = f"{compacting.table}, {compacting.day}"
            outcome.failed.append(f"{where}: {error}")
            _log.error("compaction_failed", key=where, error=error)
            return
        self._await(self._deed.commit(compacting, written.files, began_ms, outcome))

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)
