"""What the planner decides, case by case."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.loading import ConfigError, defaults, load
from pipeline.lake.compaction import OTHERS
from pipeline.lake.layout import LakeSegment
from pipeline.lake.snapshots import LedgerSnapshot, SnapshotFile, commit_key, file_key, slot_of
from pipeline.retention.policy import Policy, RetentionRule
from pipeline.retention.verdicts import RetentionPlan, RetentionVerdict
from pipeline.tables import LOGS, STATUS, TASKS
from tests.pipeline.retention_world import DAY_MS, FIRST, HOUR_MS, LAYOUT, START_MS, World, policy

RULES = policy(days=4, tenants={"acme": 2})


def _verdicts(plan: RetentionPlan, verdict: RetentionVerdict) -> list[str]:
    return sorted(one.info.key for one in plan.of(verdict))


def _world(*days: int, rows_each: int = 1) -> tuple[World, list[str]]:
    """A segment on each of these days, counted from the first."""
    world = World()
    keys = [
        world.segment(TASKS, START_MS + day * DAY_MS, [("", f"{day}-{n}") for n in range(rows_each)]) for day in days
    ]
    return world, keys


def test_the_defaults_are_those_of_the_contract() -> None:
    rules = Policy.of(defaults().lake)
    days = {name: rule.retention_ms / DAY_MS for name, rule in rules.tables.items()}
    assert days == {"tasks": 7, "status": 14, "logs": 30, "dlq": 90, "flows": 30}
    assert all(rule.max_bytes == 0 and not rule.tenants for rule in rules.tables.values())
    assert (rules.ledger.retention_ms / DAY_MS, rules.ledger.max_bytes) == (30, 5 << 30)
    assert (rules.quarantine.retention_ms / DAY_MS, rules.raw_keep_ms) == (90, DAY_MS)


def test_tenants_have_their_own_where_it_is_another() -> None:
    config = Config()
    config.CopyFrom(defaults())
    config.lake.tenants["acme"].tasks.seconds = 86_400
    config.lake.tenants["blue"].tasks.seconds = 7 * 86_400  # as all others
    config.lake.tenants["blue"].logs.seconds = 400 * 86_400
    rules = Policy.of(config.lake)
    assert rules.tables["tasks"].tenants == {"acme": DAY_MS}
    assert rules.tables["logs"].tenants == {"blue": 400 * DAY_MS}
    assert rules.tables["tasks"].classes == (OTHERS, "acme")
    assert rules.longest_ms == 400 * DAY_MS


@pytest.mark.parametrize(("hours", "closed"), [(24, False), (47, False), (48, True)])
def test_only_days_that_ended_a_day_ago_are_compacted(hours: int, closed: bool) -> None:
    world, _ = _world(0)
    world.sleep(hours * HOUR_MS)
    assert bool(world.plan(RULES).compactions) is closed


def test_age_counts_from_the_end_of_the_day() -> None:
    """To the millisecond: a row of the first moment of a day goes with that of its last."""
    world, (key, _) = _world(0, 20)
    world.now_ms = START_MS + 6 * DAY_MS - 1
    assert world.plan(policy(days=5)).retirings == ()
    world.sleep(1)
    [commit] = world.plan(policy(days=5)).retirings
    assert (commit.files, commit.replaces) == ((), (key,))
    world.do(world.plan(policy(days=5)))
    world.sleep(DAY_MS - 1)
    assert _verdicts(world.plan(policy(days=5)), RetentionVerdict.DROP) == []
    world.sleep(1)
    assert _verdicts(world.plan(policy(days=5)), RetentionVerdict.DROP) == [key]


def test_what_was_compacted_stays_for_readers() -> None:
    world, (key, _) = _world(0, 20)
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    assert world.plan(RULES).empty
    world.sleep(DAY_MS - 1)
    assert world.plan(RULES).empty
    world.sleep(1)
    assert _verdicts(world.plan(RULES), RetentionVerdict.DROP) == [key]


def test_what_comes_back_goes_again() -> None:
    """A segment that a slow exporter writes once more, after it was compacted and deleted."""
    world, (key, _) = _world(0, 20)
    rows = world.things[key].rows
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    world.sleep(DAY_MS)
    world.do(world.plan(RULES))
    world.put(key, rows=rows)
    plan = world.plan(RULES)
    assert (plan.compactions, _verdicts(plan, RetentionVerdict.DROP)) == ((), [key])


def test_files_of_a_tenant_whose_time_is_over_count_no_longer() -> None:
    world = World()
    world.segment(TASKS, START_MS, [("acme", "1"), ("", "2")])
    world.segment(TASKS, START_MS + 20 * DAY_MS, [("", "3")])
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    assert world.rows(TASKS) == {("acme", "1"), ("", "2"), ("", "3")}
    world.sleep(DAY_MS)
    plan = world.plan(RULES)
    assert [(one.generation, one.rows) for one in plan.retirings] == [(2, 1)]
    world.do(plan)
    assert world.rows(TASKS) == {("", "2"), ("", "3")}
    world.sleep(DAY_MS)
    assert [key for key in _verdicts(world.plan(RULES), RetentionVerdict.DROP) if "/acme/" in key]


def test_a_tenant_that_gets_its_own_time_gets_files_of_its_own() -> None:
    """Once: a tenant that has lost it, or has none there, is no reason to compact again."""
    world = World()
    world.segment(TASKS, START_MS, [("acme", "1"), ("", "2")])
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(policy(days=4)))
    longer = policy(days=4, tenants={"acme": 9, "blue": 9})
    [compacting] = world.plan(longer).compactions
    assert (compacting.generation, compacting.tenants) == (2, ("acme", "blue"))
    world.do(world.plan(longer))
    assert world.plan(longer).empty
    assert world.plan(policy(days=4)).compactions == ()
    world.now_ms = START_MS + 5 * DAY_MS
    world.do(world.plan(longer))
    assert world.rows(TASKS) == {("acme", "1")}


def test_what_comes_back_generations_later_counts_for_nobody() -> None:
    world, (key, *_) = _world(0, 20)
    rows = world.things[key].rows
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(policy(days=9)))
    world.segment(TASKS, START_MS, [("", "late")], partition=1)
    world.do(world.plan(policy(days=9)))
    world.sleep(DAY_MS)
    world.do(world.plan(policy(days=9)))
    assert LAYOUT.compaction("tasks", FIRST, 1) not in world.things
    world.put(key, rows=rows)
    assert world.plan(policy(days=9)).compactions == ()


def test_files_of_compactions_that_did_not_end_are_collected_a_day_later() -> None:
    world, _ = _world(0)
    world.now_ms = START_MS + 2 * DAY_MS
    world.compact(world.plan(RULES).compactions[0], steps=2)
    world.do(world.plan(RULES))
    [orphan] = [key for key in world.things if "/1/" in key]
    world.sleep(DAY_MS - 1)
    assert orphan not in _verdicts(world.plan(RULES), RetentionVerdict.DROP)
    world.sleep(1)
    assert orphan in _verdicts(world.plan(RULES), RetentionVerdict.DROP)


def test_a_file_that_is_missing_is_made_again_as_long_as_its_segments_are_there() -> None:
    world, _ = _world(0, 20)
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    [file] = [key for key in world.things if key.endswith(f"/{OTHERS}/00000.parquet")]
    del world.things[file]
    world.sleep(DAY_MS)
    plan = world.plan(RULES)
    assert _verdicts(plan, RetentionVerdict.DROP) == []
    world.do(plan)
    assert ("", "0-0") in world.rows(TASKS)


def test_a_day_whose_commit_cannot_be_read_is_left_alone() -> None:
    world, keys = _world(0, 20)
    world.put(LAYOUT.compaction("tasks", FIRST, 1), document=b"{}")
    world.now_ms = START_MS + 4 * DAY_MS
    plan = world.plan(RULES)
    assert plan.empty
    world.now_ms = START_MS + 30 * DAY_MS
    for _ in range(3):
        world.do(world.plan(RULES))
        world.sleep(DAY_MS)
    assert [key for key in world.things if f"day={FIRST}" in key] == []
    assert keys[1] in world.things


def test_rows_go_a_day_after_they_have_stopped_to_count_however_late_that_is() -> None:
    """Also where retention has not run for long, or the time was made shorter: readers that have begun can finish."""
    world, _ = _world(0, 300)
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    world.now_ms = START_MS + 300 * DAY_MS
    files = world.files(TASKS)
    assert files != []
    world.do(world.plan(RULES))
    world.sleep(DAY_MS - 1)
    assert world.plan(RULES).empty
    assert set(files) <= world.things.keys()
    world.sleep(1)
    plan = world.plan(RULES)
    assert set(files) & set(_verdicts(plan, RetentionVerdict.DROP))
    world.do(plan)
    [commit] = _verdicts(world.plan(RULES), RetentionVerdict.DROP)
    assert commit == LAYOUT.compaction("tasks", FIRST, 2)
    world.do(world.plan(RULES))
    assert [key for key in world.things if f"day={FIRST}" in key] == []


def test_a_day_of_which_all_files_are_missing_goes_too() -> None:
    world, (key, _) = _world(0, 20)
    world.now_ms = START_MS + 2 * DAY_MS
    world.do(world.plan(RULES))
    world.do(world.plan(RULES))
    [file] = [name for name in world.things if name.endswith(f"/{OTHERS}/00000.parquet")]
    del world.things[file]
    world.now_ms = START_MS + 30 * DAY_MS
    for _ in range(3):
        world.do(world.plan(RULES))
        world.sleep(DAY_MS)
    assert key not in world.things


def test_the_segment_that_exporters_go_on_from_is_that_of_the_newest_day() -> None:
    """Exporters that raced at midnight: one was late with entries that the other did not find any more."""
    world = World()
    world.segment(TASKS, START_MS + DAY_MS - 10, [("", "1")])
    ends = dict(world.ends)
    last = world.segment(TASKS, START_MS + DAY_MS + 5, [("", "3")])
    world.ends = ends
    for n in range(2):
        world.segment(TASKS, START_MS + DAY_MS - 5 + n, [("", f"2{n}")])
    world.now_ms = START_MS + 300 * DAY_MS
    for _ in range(3):
        world.do(world.plan(RULES))
        world.sleep(DAY_MS)
    assert last in world.things


def test_the_newest_segment_of_a_partition_stays() -> None:
    """Its rows count for nobody: all that exporters need is where it ends."""
    world, (_, newest) = _world(0, 1)
    world.now_ms = START_MS + 300 * DAY_MS
    for _ in range(3):
        world.do(world.plan(RULES))
        world.sleep(DAY_MS)
    assert world.plan(RULES).empty
    assert [key for key in world.things if "/raw/" in key] == [newest]
    assert world.rows(TASKS) == set()


def test_a_cap_takes_the_oldest_days_and_never_today() -> None:
    world, keys = _world(0, 1, 2, 3, rows_each=10)  # 200 bytes each
    world.now_ms = START_MS + 3 * DAY_MS + HOUR_MS
    rules = policy(days=40, cap=450)
    plan = world.plan(rules)
    assert _verdicts(plan, RetentionVerdict.RETIRE) == keys[:2]
    assert plan.over == ()
    world.do(plan)
    assert world.plan(rules).empty
    tight = world.plan(policy(days=40, cap=1))
    assert _verdicts(tight, RetentionVerdict.RETIRE) == [keys[2]]
    assert "tasks has 200 bytes" in tight.over[0]


def test_logs_are_compacted_before_the_tables_that_say_whose_they_are() -> None:
    world = World()
    for table in (TASKS, STATUS, LOGS):
        world.segment(table, START_MS, [("", "1")])
    world.sleep(2 * DAY_MS)
    assert [one.table for one in world.plan(RULES).compactions] == ["logs", "status", "tasks"]


def test_markers_stay_as_long_as_any_table_and_the_newest_for_ever() -> None:
    world = World()
    keys = [LAYOUT.marker("tasks", 1, epoch) for epoch in (2, 3)]
    for key in keys:
        world.put(key)
    world.now_ms = START_MS + 92 * DAY_MS - 1
    assert world.plan(RULES).empty
    world.sleep(1)
    assert _verdicts(world.plan(RULES), RetentionVerdict.DROP) == keys[:1]


def test_what_is_not_known_is_left_alone() -> None:
    world = World()
    for key in (
        "readme.txt",
        f"{LAYOUT.root}raw/tasks/part=000/x.parquet",
        f"{LAYOUT.root}raw/other/x",
        "other/v1/x.json",
    ):
        world.put(key)
    world.now_ms += 4000 * DAY_MS
    plan = world.plan(RULES)
    assert plan.empty
    assert len(plan.decisions) == 4


def test_quarantine_has_a_time_and_a_cap_of_its_own() -> None:
    world = World()
    keys = []
    for day in range(3):
        segment = LakeSegment("dlq", 0, 1, (START_MS + day * DAY_MS, 0), FIRST + timedelta(days=day))
        keys.append(LAYOUT.segment(segment, "quarantine"))
        world.put(keys[-1], size=100)
    world.now_ms = START_MS + 3 * DAY_MS
    assert _verdicts(world.plan(policy(quarantine=RetentionRule(90 * DAY_MS, 150))), RetentionVerdict.DROP) == keys[:2]
    world.now_ms = START_MS + 12 * DAY_MS
    assert _verdicts(world.plan(policy(quarantine=RetentionRule(10 * DAY_MS))), RetentionVerdict.DROP) == keys[:1]


def _snapshot(world: World, day: int, size: int = 100, *, broken: bool = False) -> list[str]:
    taken = START_MS + day * DAY_MS
    slot = slot_of(taken, DAY_MS)
    file, commit = file_key(LAYOUT, slot, "a", 0), commit_key(LAYOUT, slot)
    world.now_ms = taken
    if not broken:
        world.put(file, size=size)
    told = LedgerSnapshot(slot, taken, 1, (SnapshotFile(file, 1, size, ""),))
    world.put(commit, size=0, document=told.to_json())
    return [commit, file]


def test_the_newest_valid_snapshot_stays_whatever_its_age() -> None:
    world = World()
    old, newest = _snapshot(world, 0), _snapshot(world, 1)
    _snapshot(world, 2, broken=True)
    world.now_ms = START_MS + 4000 * DAY_MS
    plan = world.plan(policy(ledger=RetentionRule(30 * DAY_MS, 50)))
    dropped = _verdicts(plan, RetentionVerdict.DROP)
    assert set(old) < set(dropped)
    assert set(newest).isdisjoint(dropped)
    assert "100 bytes" in plan.over[0]
    world.do(plan)
    assert world.plan(policy(ledger=RetentionRule(30 * DAY_MS, 50))).empty


def test_a_cap_of_the_ledger_takes_the_oldest_snapshots() -> None:
    world = World()
    snapshots = [_snapshot(world, day, size) for day, size in enumerate([10, 100, 100, 100])]
    plan = world.plan(policy(ledger=RetentionRule(30 * DAY_MS, 250)))
    assert _verdicts(plan, RetentionVerdict.DROP) == sorted([*snapshots[0], *snapshots[1]])
    assert plan.over == ()


def test_files_of_snapshots_without_a_commit_are_collected_a_day_later() -> None:
    world = World()
    slot = slot_of(START_MS, DAY_MS)
    world.put(file_key(LAYOUT, slot, "a", 0))
    world.sleep(DAY_MS - 1)
    assert world.plan(RULES).empty
    world.sleep(1)
    assert len(_verdicts(world.plan(RULES), RetentionVerdict.DROP)) == 1


def test_no_tenant_has_the_name_of_all_others(tmp_path: Path) -> None:
    path = tmp_path / "fetchbox.toml"
    path.write_text(f'[lake.tenants.{OTHERS}]\ntasks = "24h"\n')
    with pytest.raises(ConfigError, match=r"lake\.tenants"):
        load(path, {})
