"""Which keys of the configuration each role reads: sections, and single keys of other roles' sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cli.serve import Role

_EVERY: Final = frozenset({"observability", "security"})
_STORES: Final = frozenset({"object_store", "redis", "streams"})
_SERVER: Final = frozenset({"gateway.max_request_bytes", "ingest.max_document_bytes", "rpc"})

READ: Final[Mapping[Role, frozenset[str]]] = {
    Role.INGEST: _EVERY
    | _STORES
    | _SERVER
    | {"flow_engine", "flows", "ingest", "job_types", "ledger.idle_timeout", "proxies", "secrets", "tasks"}
    | {"worker.deadline", "worker.heartbeat_ttl"},
    Role.WORKER: _EVERY
    | _STORES
    | _SERVER
    | {"circuit_breaker", "fetcher", "flow_engine", "flows", "job_types", "producer.scan_dir", "proxies", "reaper"}
    | {"secrets", "tasks", "worker"},
    Role.OPERATOR: _EVERY
    | _STORES
    | _SERVER
    | {"circuit_breaker", "exporter.hold", "flow_engine", "job_types", "ledger", "operator", "proxies"}
    | {"tasks.job_ttl_s", "worker"},
    Role.GATEWAY: _EVERY | {"gateway"},
    Role.PRODUCER: _EVERY | {"object_store", "producer", "redis", "worker"},
    Role.REAPER: _EVERY | _STORES | {"reaper", "worker"},
    Role.EXPORTER: _EVERY | _STORES | {"exporter", "flow_engine.retention", "lake", "tasks.job_ttl_s"},
}
"""Role -> `section` for all its keys, or `section.key`. A test holds this against what the code reads."""
