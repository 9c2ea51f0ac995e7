"""The configuration of seed 002: every key from a file, from the environment and by default; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.duration_pb2 import Duration

from fetchbox.config.v1.config_pb2 import Config
from kernel import durations
from kernel.config import loading as configuration
from kernel.config.loading import ConfigError

req = pytest.mark.req

UNFINISHED = [".*", "*~", "*.tmp", "*.part", "*.partial", "*.crdownload", "*.swp"]
HIGH, LOW = "jobqueue:high_priority", "jobqueue:low_priority"

KEYS = [
    # key, default, from a file, from the environment as text, and what that text means
    pytest.param("redis.addr", "localhost:6379", "r:1", "s:2", "s:2", marks=req("R002-config.04")),
    pytest.param("redis.username", "", "ada", "bob", "bob", marks=req("R002-config.05")),
    pytest.param("redis.password", "", "a b", "x,y", "x,y", marks=req("R002-config.06")),
    pytest.param("redis.db", 0, 3, "4", 4, marks=req("R002-config.07")),
    pytest.param("redis.pool_size_multiplier", 10, 2, "3", 3, marks=req("R002-config.08")),
    pytest.param("redis.min_idle_conns", 5, 0, "7", 7, marks=req("R002-config.09")),
    pytest.param("redis.dial_timeout", 5000, "1s", "250ms", 250, marks=req("R002-config.10")),
    pytest.param("redis.read_timeout", 3000, "1m", "4s", 4000, marks=req("R002-config.11")),
    pytest.param("redis.write_timeout", 3000, "10s", "1m30s", 90_000, marks=req("R002-config.12")),
    pytest.param("redis.max_retries", 3, 0, "5", 5, marks=req("R002-config.13")),
    pytest.param("worker.count", 16, 1, "64", 64, marks=req("R002-config.14")),
    pytest.param("worker.heartbeat_ttl", 30_000, "5s", "1m", 60_000, marks=req("R002-config.15")),
    pytest.param("worker.max_retries", 3, 0, "9", 9, marks=req("R002-config.16")),
    pytest.param("worker.backoff.base", 500, "1s", "20ms", 20, marks=req("R002-config.17")),
    pytest.param("worker.backoff.max", 10_000, "1m", "2h", 7_200_000, marks=req("R002-config.18")),
    pytest.param("worker.priorities", ["high", "low"], ["low", "high"], "low", ["low"], marks=req("R002-config.19")),
    pytest.param(
        "worker.queues",
        {"high": HIGH, "low": LOW},
        {"high": "a", "low": "b"},
        "{high: c, low: d}",
        {"high": "c", "low": "d"},
        marks=req("R002-config.20"),
    ),
    pytest.param(
        "worker.processing_list_pattern",
        *("jobqueue:worker:%s:processing", "q:%s", "w:%s:held", "w:%s:held"),
        marks=req("R002-config.21"),
    ),
    pytest.param(
        "worker.heartbeat_key_pattern",
        *("jobqueue:processing:worker:%s", "worker:hb:%s", "hb:%s", "hb:%s"),
        marks=req("R002-config.22"),
    ),
    pytest.param("worker.completed_list", "jobqueue:completed", "done", "ok", "ok", marks=req("R002-config.23")),
    pytest.param("worker.dead_letter_list", "jobqueue:dead_letter", "dead", "dlq", "dlq", marks=req("R002-config.24")),
    pytest.param("worker.brpoplpush_timeout", 1000, "15s", "2s", 2000, marks=req("R002-config.25")),
    pytest.param("producer.scan_dir", "", "/in", "/data/in", "/data/in", marks=req("R002-config.26")),
    pytest.param("producer.include_globs", [], ["*.csv"], "*.a,*.b", ["*.a", "*.b"], marks=req("R002-config.27")),
    pytest.param("producer.exclude_globs", UNFINISHED, [], "*.log", ["*.log"], marks=req("R002-config.28")),
    pytest.param("producer.default_priority", "low", "high", "low", "low", marks=req("R002-config.29")),
    pytest.param("producer.high_priority_exts", [], [".csv"], ".a,b", [".a", "b"], marks=req("R002-config.30")),
    pytest.param("producer.rate_limit_per_sec", 100, 0, "7", 7, marks=req("R002-config.31")),
    pytest.param(
        "producer.rate_limit_key", "jobqueue:rate_limit:producer", "limit", "rl", "rl", marks=req("R002-config.32")
    ),
    pytest.param("circuit_breaker.failure_threshold", 0.5, 1.0, "0.25", 0.25, marks=req("R002-config.33")),
    pytest.param("circuit_breaker.window", 60_000, "5m", "10s", 10_000, marks=req("R002-config.34")),
    pytest.param("circuit_breaker.cooldown_period", 30_000, "1s", "45s", 45_000, marks=req("R002-config.35")),
    pytest.param("circuit_breaker.min_samples", 20, 1, "50", 50, marks=req("R002-config.36")),
    pytest.param("observability.metrics_port", 9090, 0, "9100", 9100, marks=req("R002-config.37")),
    pytest.param("observability.log_level", "info", "debug", "error", "error", marks=req("R002-config.38")),
    pytest.param("observability.queue_sample_interval", 2000, "10s", "500ms", 500, marks=req("R002-config.39")),
    pytest.param("observability.tracing.enabled", False, True, "true", True, marks=req("R002-config.40")),
    pytest.param(
        "observability.tracing.endpoint",
        *("http://localhost:4317", "http://otel:4317", "https://otel", "https://otel"),
        marks=req("R002-config.41"),
    ),
]


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]  # a table by now


def _value(config: Config, key: str) -> Any:
    """What the configuration says under a key; durations in milliseconds."""
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    if isinstance(found, Duration):
        return durations.millis(found)
    if hasattr(found, "keys"):
        return dict(found)
    return found if isinstance(found, str | int | float) else list(found)


def _written(path: Path, key: str, value: Any) -> Path:
    path.write_text(yaml.safe_dump(_nested(key, value)))
    return path


@pytest.mark.parametrize(("key", "default", "written", "text", "meant"), KEYS)
def test_every_key_comes_from_the_file_the_environment_or_the_defaults(
    tmp_path: Path, key: str, default: Any, written: Any, text: str, meant: Any
) -> None:
    assert _value(configuration.load(None, {}), key) == default
    path = _written(tmp_path / "fetchbox.yaml", key, written)
    expected = _milliseconds(written) if isinstance(default, int) and isinstance(written, str) else written
    assert _value(configuration.load(path, {}), key) == expected
    variable = key.upper().replace(".", "_")
    assert _value(configuration.load(path, {variable: text}), key) == meant, "the environment wins over the file"
    assert _value(configuration.load(path, {f"FETCHBOX_{variable}": text}), key) == expected, "the bare name alone"


def _milliseconds(text: str) -> int:
    unit = {"ms": 1, "s": 1000, "m": 60_000}
    number = text.rstrip("ms")
    return int(number) * unit[text.removeprefix(number)]


SEED = """
redis:
  addr: redis:6379
  username: user
  password: secret
  db: 1
  pool_size_multiplier: 5
  min_idle_conns: 2
  dial_timeout: 2s
  read_timeout: 1s
  write_timeout: 1s
  max_retries: 1
worker:
  count: 4
  heartbeat_ttl: 10s
  max_retries: 2
  backoff: { base: 100ms, max: 5s }
  priorities: [urgent, high, low]
  queues: { urgent: q:urgent, high: q:high, low: q:low }
  processing_list_pattern: "q:worker:%s:processing"
  heartbeat_key_pattern: "worker:hb:%s"
  completed_list: q:completed
  dead_letter_list: q:dead
  brpoplpush_timeout: 5s
producer:
  scan_dir: ./in
  include_globs: ["*.csv", "a/**"]
  exclude_globs: ["*.tmp"]
  default_priority: low
  high_priority_exts: [".csv"]
  rate_limit_per_sec: 0
  rate_limit_key: q:limit
circuit_breaker:
  failure_threshold: 0.4
  window: 30s
  cooldown_period: 10s
  min_samples: 5
observability:
  metrics_port: 9191
  log_level: warn
  queue_sample_interval: 1s
  tracing: { enabled: true, endpoint: "http://otel:4317" }
"""


@pytest.mark.req("R002-config.01")
def test_the_schema_of_the_seed_is_read_as_yaml_and_as_toml(tmp_path: Path) -> None:
    (tmp_path / "seed.yaml").write_text(SEED)
    loaded = configuration.load(tmp_path / "seed.yaml", {})
    table = yaml.safe_load(SEED)
    leaves = {f"{section}.{name}" for section, names in table.items() for name in names}
    leaves |= {"worker.backoff.base", "worker.backoff.max"}
    leaves |= {"observability.tracing.enabled", "observability.tracing.endpoint"}
    leaves -= {"worker.backoff", "observability.tracing"}
    assert {str(row.values[0]) for row in KEYS} == leaves, "the table above knows every key of the seed"
    assert list(loaded.worker.priorities) == ["urgent", "high", "low"]
    assert loaded.worker.queues["urgent"] == "q:urgent"
    assert loaded.observability.tracing.enabled
    (tmp_path / "seed.toml").write_text(_toml(table))
    assert configuration.load(tmp_path / "seed.toml", {}) == loaded


def _toml(table: dict[str, Any]) -> str:
    return "".join(
        f"[{section}]\n" + "".join(f"{name} = {_inline(value)}\n" for name, value in names.items())
        for section, names in table.items()
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_inline(part)}" for name, part in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else repr(value).replace("'", '"')


@pytest.mark.req("R002-config.02")
def test_a_variable_in_upper_snake_case_overrides_its_key_and_is_named_when_it_is_wrong() -> None:
    assert configuration.load(None, {"REDIS_ADDR": "r:1"}).redis.addr == "r:1"
    assert dict(configuration.environment_names())["WORKER_BACKOFF_BASE"] == "worker.backoff.base"
    with pytest.raises(ConfigError) as caught:
        configuration.load(None, {"WORKER_HEARTBEAT_TTL": "soon"})
    assert caught.value.key == "WORKER_HEARTBEAT_TTL"


@pytest.mark.req("R002-config.03")
@pytest.mark.parametrize(
    ("text", "millis"), [("500ms", 500), ("5s", 5000), ("24h", 86_400_000), ("1h30m", 5_400_000), ("1.5s", 1500)]
)
def test_durations_are_written_like_this(tmp_path: Path, text: str, millis: int) -> None:
    path = _written(tmp_path / "a.yaml", "circuit_breaker.window", text)
    assert durations.millis(configuration.load(path, {}).circuit_breaker.window) == millis


@pytest.mark.req("R002-config.03")
@pytest.mark.parametrize("value", ["5", 5, "5 s", "-1s", "1d", "", "s", None, "1e3s", ["1s"]], ids=repr)
def test_durations_are_not_written_like_that(tmp_path: Path, value: Any) -> None:
    path = _written(tmp_path / "a.yaml", "circuit_breaker.window", value)
    with pytest.raises(ConfigError) as caught:
        configuration.load(path, {})
    assert caught.value.key == "circuit_breaker.window"


def _refused(tmp_path: Path, key: str, value: Any) -> list[str]:
    """The keys that the error names."""
    with pytest.raises(ConfigError) as caught:
        configuration.load(_written(tmp_path / "a.yaml", key, value), {})
    return [caught.value.key, *(other for other, _ in caught.value.more)]


@pytest.mark.req("R002-validation.01")
@pytest.mark.parametrize("count", [0, -1])
def test_less_than_one_slot_is_refused(tmp_path: Path, count: int) -> None:
    assert _refused(tmp_path, "worker.count", count) == ["worker.count"]


@pytest.mark.req("R002-validation.02")
def test_no_priorities_are_refused(tmp_path: Path) -> None:
    assert "worker.priorities" in _refused(tmp_path, "worker.priorities", [])


@pytest.mark.req("R002-validation.03")
def test_a_priority_without_a_queue_is_refused_and_named(tmp_path: Path) -> None:
    assert "worker.queues" in _refused(tmp_path, "worker.priorities", ["high", "urgent", "low"])
    assert _refused(tmp_path, "worker.queues", {"high": ""}) == ["worker.queues"]


@pytest.mark.req("R002-validation.04")
def test_a_heartbeat_of_less_than_five_seconds_is_refused(tmp_path: Path) -> None:
    assert _refused(tmp_path, "worker.heartbeat_ttl", "4999ms") == ["worker.heartbeat_ttl"]
    configuration.load(_written(tmp_path / "b.yaml", "worker.heartbeat_ttl", "5s"), {})


@pytest.mark.req("R002-validation.05")
def test_a_pop_that_may_outlast_half_a_heartbeat_is_refused(tmp_path: Path) -> None:
    assert _refused(tmp_path, "worker.brpoplpush_timeout", "15001ms") == ["worker.brpoplpush_timeout"]
    configuration.load(_written(tmp_path / "b.yaml", "worker.brpoplpush_timeout", "15s"), {})


@pytest.mark.req("R002-validation.06")
def test_a_negative_rate_is_refused_and_none_is_no_limit(tmp_path: Path) -> None:
    assert _refused(tmp_path, "producer.rate_limit_per_sec", -1) == ["producer.rate_limit_per_sec"]
    configuration.load(_written(tmp_path / "b.yaml", "producer.rate_limit_per_sec", 0), {})


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("worker.queues", {"high": "same", "low": "same"}, "worker.queues"),
        ("worker.completed_list", "jobqueue:dead_letter", "worker.queues"),
        ("worker.completed_list", "jobqueue:suspects", "worker.queues"),
        ("worker.queues", {"high": "jobqueue:delayed", "low": "low"}, "worker.queues"),
        ("worker.queues", {"high": "high", "low": "jobs:stream"}, "worker.queues"),
        ("producer.rate_limit_key", "jobqueue:workers", "producer.rate_limit_key"),
        ("producer.rate_limit_key", "jobqueue:low_priority", "worker.queues"),
        ("worker.processing_list_pattern", "no-worker", "worker.processing_list_pattern"),
        ("worker.processing_list_pattern", "%s", "worker.processing_list_pattern"),
        ("worker.processing_list_pattern", "jobqueue:%s", "worker.processing_list_pattern"),
        ("worker.heartbeat_key_pattern", "%s:%s", "worker.heartbeat_key_pattern"),
        ("worker.heartbeat_key_pattern", "jobqueue:worker:%s:processing", "worker.heartbeat_key_pattern"),
        ("producer.default_priority", "urgent", "producer.default_priority"),
        ("circuit_breaker.failure_threshold", 1.01, "circuit_breaker.failure_threshold"),
        ("reaper.scan_count", 0, "reaper.scan_count"),
    ],
)
def test_lists_that_would_be_taken_for_each_other_are_refused(tmp_path: Path, key: str, value: Any, named: str) -> None:
    assert named in _refused(tmp_path, key, value)
