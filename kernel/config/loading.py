"""Configuration: TOML or YAML, then the environment, into one checked `fetchbox.config.v1.Config`.

The message is the schema: field names are the keys, its protovalidate rules and the few below are the rules. A wrong
value or an unknown key raises `ConfigError`, which names the key; nothing is guessed and nothing is ignored, except
environment variables that are no key of ours, since orchestrators inject such.
"""

import ipaddress
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fetchbox.config.v1.config_pb2 import Config, JobType, Task
from kernel.config import access, addresses, secrets, storage
from kernel.config.text import parse_yaml, read_table
from kernel.config.values import ConfigError, apply
from kernel.durations import seconds
from kernel.redis import keys
from kernel.validation import violations

__all__ = ["TASKS", "ConfigError", "also_check", "default_values", "defaults", "job_type", "load", "task"]

_BARE_SECTIONS = ("redis", "worker", "producer", "circuit_breaker", "observability")
"""The keys of these sections are overridden by bare names (`REDIS_ADDR`), but for `_PREFIXED` and what comes later."""

_PREFIXED = frozenset(
    {
        "observability.metrics_listen",
        "observability.namespace",
        "producer.max_backlog",
        "producer.scan_interval",
        "producer.settle",
        "redis.start_patience",
        "redis.tls",
        "redis.tls_ca_file",
        "worker.block",
        "worker.completed_keep.max_age",
        "worker.completed_keep.max_count",
        "worker.crash_limit",
        "worker.dead_letter_keep.max_age",
        "worker.dead_letter_keep.max_count",
        "worker.deadline",
        "worker.drain_grace",
        "worker.file_key_prefix",
        "worker.file_roots",
        "worker.ingest",
        "worker.ingest_token",
        "worker.listen",
        "worker.low_priority_share",
        "worker.manifest_job_type",
        "worker.reap_interval",
    }
)


TASKS = ("chat", "plan", "code", "tool", "rag", "embed")
"""What task jobs name as their task."""

_CALLBACKS = frozenset({"tool", "rag"})
_ENDPOINTS = frozenset({"openai", "http"})
_OWN_KEYS = frozenset({keys.FILE_WORKERS, keys.FILE_DELAYED, keys.FILE_CRASHES, keys.FILE_SUSPECTS, keys.QUEUE})
"""What could be taken for a list of file jobs: the one of suspects would run what is put onto it."""


Checks = Callable[[Config], Iterable[tuple[str, str]]]
"""Rules: each finding is a key, and what is wrong there."""
_MORE: list[Checks] = []


def also_check(checks: Checks) -> Checks:
    """Registers rules of a package above, which is imported before a configuration is loaded."""
    _MORE.append(checks)
    return checks


def job_type(config: Config, name: str) -> JobType | None:
    """A configured job type; None for an unknown one. `default` always exists."""
    return config.job_types.get(name)


def task(config: Config, name: str) -> Task | None:
    """The configuration of a task; None for one without a table, and for any other name."""
    if name not in TASKS:
        return None
    found: Task = getattr(config.tasks, name)
    return found if config.tasks.HasField(name) else None  # type: ignore[arg-type]  # the stubs want literals


@cache
def default_values() -> dict[str, Any]:
    """The defaults as a file would have them."""
    return tomllib.loads(files(__package__).joinpath("defaults.toml").read_text())


def defaults() -> Config:
    """The configuration of an empty file."""
    return load(None, {})


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Config:
    """The checked configuration.

    `path` may be None or missing: then the defaults hold. Raises `ConfigError` with every broken rule.
    """
    config = Config()
    apply(config, default_values())
    if path is not None:
        apply(config, read_table(path))
    for name, key in environment_names():
        if name in environ:
            _override(config, key, name, environ[name])
    for value in config.job_types.values():
        value.handler = value.handler or "default"
        value.checksum = value.checksum or "strict"
    for name, kind in _tasks(config):
        kind.handler = kind.handler or ("http" if name in _CALLBACKS else "openai")
    if not config.flow_engine.HasField("timeline_retention"):
        config.flow_engine.timeline_retention.CopyFrom(config.flow_engine.retention)
    _check(config)
    return config


@cache
def environment_names() -> tuple[tuple[str, str], ...]:
    """Every overridable key with its variable: `("REDIS_ADDR", "redis.addr")`."""
    return tuple((_variable(key), key) for key in _leaves(Config.DESCRIPTOR, ""))


def _variable(key: str) -> str:
    if key == "tasks.job_ttl_s":
        return "JOB_TTL_S"  # an older name that programs beside FetchBox read, too
    name = key.upper().replace(".", "_")
    bare = key.split(".", maxsplit=1)[0] in _BARE_SECTIONS and key not in _PREFIXED
    return name if bare else f"FETCHBOX_{name}"


def _leaves(descriptor: Descriptor, prefix: str) -> Iterator[str]:
    for field in descriptor.fields:
        key = f"{prefix}{field.name}"
        if _is_map(field):
            yield key  # as a YAML table: WORKER_QUEUES='{high: a, low: b}'
        elif field.message_type is None or field.message_type.full_name == "google.protobuf.Duration":
            yield key
        elif not field.is_repeated:
            yield from _leaves(field.message_type, f"{key}.")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_text(key: str) -> bool:
    """Whether a key is a string, which is taken as it is: `[::1]:8080` is an address and no list."""
    *sections, name = key.split(".")
    descriptor: Any = Config.DESCRIPTOR
    for section in sections:
        descriptor = descriptor.fields_by_name[section].message_type
    field = descriptor.fields_by_name[name]
    return bool(field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated)


def _override(config: Config, key: str, name: str, text: str) -> None:
    try:
        value: Any = parse_yaml(text) if text.startswith(("[", "{")) and not _is_text(key) else text
    except ValueError as error:
        raise ConfigError(name, f"is not valid YAML: {error} (overrides {key})") from error
    for part in reversed(key.split(".")):
        value = {part: value}
    try:
        apply(config, value, from_text=True)
    except ConfigError as error:
        raise ConfigError(name, f"{error.rule} (overrides {key})") from error


def _check(config: Config) -> None:
    broken = [(violation.field, violation.description) for violation in violations(config)]
    broken += _cross_checks(config)
    if broken:
        raise ConfigError(*broken[0], more=tuple(broken[1:]))


def _network_checks(key: str, networks: Iterable[str]) -> Iterator[tuple[str, str]]:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            yield key, f"{network!r} is no network: {error}"


def _cross_checks(config: Config) -> Iterator[tuple[str, str]]:
    yield from _list_checks(config)
    if seconds(config.worker.backoff.base) > seconds(config.worker.backoff.max):
        yield "worker.backoff.base", "must not be longer than worker.backoff.max"
    yield from _network_checks("fetcher.allow_networks", config.fetcher.allow_networks)
    yield from _network_checks("gateway.trusted_proxies", config.gateway.trusted_proxies)
    tls = config.security.tls
    if bool(tls.cert_file) != bool(tls.key_file):
        yield "security.tls", "needs both cert_file and key_file"
    if tls.client_ca_file and not tls.cert_file:
        yield "security.tls.client_ca_file", "needs cert_file and key_file"
    for name, kind in config.job_types.items():
        yield from _proxy_checks(config, f"job_types.{name}.proxy", kind)
    for name, value in _tasks(config):
        yield from _task_checks(config, f"tasks.{name}", value)
    for checks in (addresses.checks, access.checks, storage.checks, secrets.checks, *_MORE):
        yield from checks(config)


def _list_checks(config: Config) -> Iterator[tuple[str, str]]:
    """The rules about two keys of file jobs, and what keeps their lists apart."""
    worker = config.worker
    if 2 * seconds(worker.brpoplpush_timeout) > seconds(worker.heartbeat_ttl):
        yield "worker.brpoplpush_timeout", "must be at most half of worker.heartbeat_ttl"
    for priority in worker.priorities:
        if not worker.queues.get(priority):
            yield "worker.queues", f"has no entry for the priority {priority!r}, which worker.priorities names"
    lists = [*(worker.queues.get(priority, "") for priority in worker.priorities)]
    lists += [worker.completed_list, worker.dead_letter_list]
    yield from _key_checks(lists, config.producer.rate_limit_key)
    before, _, after = worker.processing_list_pattern.partition("%s")
    for name in lists:
        if len(name) > len(before + after) and name.startswith(before) and name.endswith(after):
            yield "worker.processing_list_pattern", f"fits {name!r}: the reaper would take that for what a worker holds"
    if worker.processing_list_pattern == worker.heartbeat_key_pattern:
        yield "worker.heartbeat_key_pattern", "must differ from worker.processing_list_pattern"
    if config.producer.default_priority not in worker.priorities:
        yield "producer.default_priority", "must be one of worker.priorities"
    if worker.manifest_job_type not in config.job_types:
        yield "worker.manifest_job_type", "is not under [job_types]"


def _key_checks(lists: list[str], limit: str) -> Iterator[tuple[str, str]]:
    """Each of these is a key that nothing else uses."""
    names = [*lists, limit]
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        told = "each queue, completed_list, dead_letter_list and producer.rate_limit_key is a key of its own"
        yield "worker.queues", f"{name!r} is named twice: {told}"
    for key, name in (*(("worker.queues", name) for name in lists), ("producer.rate_limit_key", limit)):
        if name in _OWN_KEYS:
            yield key, f"{name!r} is a key of FetchBox's own"


def _tasks(config: Config) -> Iterator[tuple[str, Task]]:
    for name in TASKS:
        found = task(config, name)
        if found is not None:
            yield name, found


def _task_checks(config: Config, key: str, value: Task) -> Iterator[tuple[str, str]]:
    if value.handler in _ENDPOINTS and not value.endpoint:
        yield f"{key}.endpoint", f"is required by the handler {value.handler!r}"
    backoff = config.worker.backoff
    base = value.backoff.base if value.backoff.HasField("base") else backoff.base
    longest = value.backoff.max if value.backoff.HasField("max") else backoff.max
    if seconds(base) > seconds(longest):
        yield f"{key}.backoff.base", "must not be longer than its max"


def _proxy_checks(config: Config, key: str, kind: JobType) -> Iterator[tuple[str, str]]:
    pools = [kind.proxy.primary, *kind.proxy.fallbacks]
    if not kind.proxy.primary and kind.proxy.fallbacks:
        yield f"{key}.primary", "is required where fallbacks are given"
    for index, pool in enumerate(pools):
        if pool and pool not in config.proxies:
            yield key, f"names the pool {pool!r}, which is not under [proxies]"
        if pool in pools[:index]:
            yield key, f"names the pool {pool!r} twice: fallbacks must not lead back"
