"""Every metric of FetchBox, in one registry.

Labels are bounded: job types and queues outside the configuration and failure codes that are none of ours count as
`other`, and no label of any metric has more than 50 values; jobs, hosts and tenants are never labels. Names follow
Prometheus: `_total` for counters, base units (seconds, bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from fetchbox.errors.v1.errors_pb2 import FailureCode
from kernel.redis import keys
from kernel.telemetry.bounded import OTHER
from kernel.telemetry.bounded import BoundedCounter as Counter
from kernel.telemetry.bounded import BoundedGauge as Gauge
from kernel.telemetry.bounded import BoundedHistogram as Histogram

__all__ = ["OTHER", "REGISTRY", "configure"]

REGISTRY: Final = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)  # memory, CPU, open files, and the start by which a crash loop is seen
_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"fetchbox_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"fetchbox_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(f"fetchbox_{name}", text, labels, registry=REGISTRY, buckets=buckets)


# Bare names, without `fetchbox_`; `queue` is a priority list, `jobs.tasks` or `jobs:stream`.
JOBS_PRODUCED = Counter("jobs_produced", "Jobs put onto a queue.", ["queue"], registry=REGISTRY)
JOBS_CONSUMED = Counter(
    "jobs_consumed", "Jobs taken from a queue, without those that were deferred.", ["queue"], registry=REGISTRY
)
JOBS_COMPLETED = Counter("jobs_completed", "Jobs that were done.", ["queue"], registry=REGISTRY)
JOBS_FAILED = Counter("jobs_failed", "Failed attempts, by kind of failure.", ["queue", "reason"], registry=REGISTRY)
JOBS_RETRIED = Counter(
    "jobs_retried", "Failed attempts after which another was scheduled.", ["queue"], registry=REGISTRY
)
JOBS_DEFERRED = _counter(
    "jobs_deferred",
    "Times that a job was deferred without an attempt, for instance by an open circuit breaker.",
    "queue",
)
JOBS_DEAD = Counter("jobs_dead_letter", "Jobs that failed for good.", ["queue"], registry=REGISTRY)
REAPED = Counter("reaper_jobs_moved", "Jobs reclaimed from workers that died.", ["queue"], registry=REGISTRY)
JOB_SECONDS = Histogram(
    "job_processing_duration_seconds", "One attempt at a job.", ["queue"], registry=REGISTRY, buckets=_SLOW
)
QUEUE_LENGTH = Gauge("queue_length", "Jobs that wait in a queue.", ["queue"], registry=REGISTRY)
BREAKER_STATE = Gauge(
    "circuit_breaker_state", "Circuit breakers: 0 closed, 1 half-open, 2 open.", ["queue"], registry=REGISTRY
)
HOST_BREAKERS = _gauge(
    "host_breakers",
    "Circuit breakers that are not closed and have no gauge of their own, by state: of hosts, and of models that only"
    " payloads name.",
    "state",
)
BREAKERS_OPENED = _counter("breakers_opened", "Times that results of this process opened a circuit breaker.", "kind")
BREAKER_OPEN_SECONDS = _counter(
    "breaker_open_seconds", "How long the circuit breakers that this process closed had not been closed.", "kind"
)
RECOVERY_SECONDS = _histogram(
    "recovery_seconds", "From the last heartbeat of a dead worker until its work was reclaimed.", "queue", buckets=_SLOW
)
QUEUE_OLDEST_WAITING = _gauge("queue_oldest_waiting_seconds", "Age of the job that waits longest in a queue.", "queue")
FILES_DELAYED = _gauge("delayed_file_jobs", "File jobs that wait for their next attempt.")
REAPER_PASS_AGE = _gauge("reaper_pass_age_seconds", "Time since the reaper of file jobs last ended a pass.")

# The producer.
PRODUCER_FILES = _counter("producer_files", "Files that the producer came upon, by what became of each.", "outcome")
PRODUCER_SCANS = _counter("producer_scans", "Scans of the whole directory, by outcome.", "outcome")
PRODUCER_SCAN_SECONDS = _histogram("producer_scan_seconds", "One scan of the whole directory.", buckets=_SLOW)
PRODUCER_SCAN_LAG = _gauge("producer_scan_lag_seconds", "Time since the end of the last scan that saw everything.")
PRODUCER_SETTLING = _gauge("producer_settling_files", "Files that are not taken yet, as they may still be written.")
PRODUCER_WAIT_SECONDS = _counter("producer_wait_seconds", "Time that the producer waited for room, by cause.", "cause")
PRODUCER_MARKS_DROPPED = _counter("producer_marks_dropped", "Marks of files dropped long after the files were gone.")

# Ingest.
JOBS_ACCEPTED = _counter("jobs_accepted", "Jobs that were answered with 202.", "job_type")
JOBS_REFUSED = _counter("jobs_refused", "Submits that were refused, by reason.", "reason")
JOBS_REPEATED = _counter("jobs_repeated", "Submits that found their job by its idempotency key.")
RESOURCES_ACCEPTED = _counter("resources_accepted", "Resources of accepted fetch jobs.", "job_type")
OUTBOX_FINISHED = _counter("outbox_finished", "Interrupted submits that the sweep finished.")
ENTRIES_LOST = _counter("lost_entries", "Deleted entries of open jobs, by what became of each.", "topic", "outcome")
DELAYS_LOST = _counter(
    "lost_delays", "Entries that had lost the time of their next attempt, and are due again.", "topic"
)
OUTBOX_LENGTH = _gauge("outbox_length", "Accepted jobs whose work is not yet published.")
OUTBOX_OVERDUE = _gauge("outbox_overdue", "Jobs among them whose submit is older than its lease.")
SUBMIT_SECONDS = _histogram("submit_seconds", "A submit from its first byte to the answer.")

# Workers.
TASKS = _counter("tasks", "Ended attempts at resources and task jobs, by outcome.", "outcome")
TASK_FAILURES = _counter("task_failures", "Failed attempts by failure code.", "code")
TASK_SECONDS = _histogram("task_seconds", "One attempt, from claim to result.", "job_type", buckets=_SLOW)
TASKS_RUNNING = _gauge("tasks_running", "Resources, task jobs and file jobs that run now.")
SLOTS = _gauge("slots", "Concurrent slots of this process.")
RETRIES = _counter("retries", "Failed attempts after which another was scheduled.", "code")
CRASHES = _counter("crashes", "Entries reclaimed from a worker that died.")
DEAD_LETTERS = _counter("dead_letters", "Resources and jobs that failed for good, by failure code.", "code")
FENCED = _counter("fenced_settlements", "Results refused because another worker holds the claim by now.")
GIVEN_BACK = _counter("given_back", "Claims that a drain gave back.")
LEASE_LOST = _counter("leases_lost", "Times that this worker fenced itself for want of a heartbeat.")
LAST_POLL_AGE = _gauge("last_successful_poll_age_seconds", "Time since work was last asked for with success.")
BYTES_FETCHED = _counter("fetched_bytes", "Bytes read from origins, as they came.")
BYTES_STORED = _counter("stored_bytes", "Bytes of stored resources.")
JOBS_ENDED = _counter("jobs_ended", "Ended jobs by final status.", "job_type", "status")
FINALIZERS = _counter("finalizers", "Runs of finalize_job by outcome.", "outcome")
PROXY_FAILURES = _counter("proxy_failures", "Requests that a proxy of a pool did not serve.", "pool")

# Flows.
FLOWS_STARTED = _counter("flows_started", "Flow runs whose first event was stored.", "flow")
FLOWS_ENDED = _counter("flows_ended", "Flow runs that ended, by status.", "flow", "status")
FLOW_STEPS = _counter("flow_steps", "Steps that were completed, failed, or are tried again.", "flow", "outcome")
FLOW_TRANSITIONS = _counter("flow_transitions", "Events that moved flow runs on.")
FLOW_ADVANCE_SECONDS = _histogram("flow_advance_seconds", "One turn of an engine, over all runs that it took.")
FLOW_FAULTS = _counter("flow_faults", "Turns on flow runs that ended in an error which another try will hardly cure.")
FLOWS_DUE = _gauge("flows_due", "Flow runs that are due and that no engine has claimed.")
FLOW_DUE_LAG = _gauge(
    "flow_due_lag_seconds", "How long the flow run has been due that has waited longest for an engine."
)
FLOW_LOGS_LOST = _counter("flow_log_lines_lost", "Log lines of steps that could not be stored in their timelines.")

# Streams.
STREAM_LENGTH = _gauge("stream_length", "Entries of a topic, all partitions.", "topic")
STREAM_BYTES = _gauge("stream_bytes", "Memory of a topic, all partitions, sampled.", "topic")
STREAM_OLDEST_AGE = _gauge("stream_oldest_age_seconds", "Age of the oldest entry of a topic.", "topic")
STREAM_TRIMMED = _counter("stream_trimmed", "Entries that retention removed.", "topic")
GROUP_LAG = _gauge("group_lag", "Entries that a group has not read.", "topic", "group")
GROUP_PENDING = _gauge("group_pending", "Entries read but not acknowledged.", "topic", "group")
QUEUE_OLDEST_AGE = _gauge("queue_oldest_age_seconds", "Age of the oldest entry that is not completed.")
UNDECODABLE = _counter("undecodable_entries", "Entries that are no message of their topic.", "topic")
DELAYED = _gauge("delayed_tasks", "Resources and task jobs that wait for their next attempt.")
OFFSET_EPOCHS = _counter(
    "offset_epochs", "Times that a stream's time was moved on because its sequence ran out.", "topic"
)
CLOCK_BEHIND = _gauge("redis_clock_behind_seconds", "How far the clock of Redis is behind the newest entry.", "topic")
EXPORT_HOLD_LAPSED = _gauge(
    "export_hold_lapsed", "Partitions whose exporter was silent for so long that retention goes on without.", "topic"
)

# Operator.
MIRRORED = _counter("statuses_mirrored", "JobStatus entries that the mirror read, by outcome.", "outcome")
JOBS_PRUNED = _counter("jobs_pruned", "Job records that retention removed.")
JOBS_EXPIRED = _counter("jobs_expired", "Task jobs that were forgotten after their record had expired.")
REPLAYS = _counter("replays", "Dead letters that were asked to run again, by outcome.", "outcome")
JOB_LOG_LINES = _counter("job_log_lines", "Lines of the logs of jobs, by level.", "level")
LEDGER_JOBS = _gauge("ledger_jobs", "Job records that are kept.")

# The exporter; topics are those of the streams, and `flows`.
EXPORT_LAG = _gauge("export_lag_seconds", "Age of the oldest entry of a topic that is not in the lake.", "topic")
EXPORT_ROWS = _counter("export_rows", "Rows that were written into the lake.", "topic")
EXPORT_BYTES = _counter("export_bytes", "Bytes of the segments that were written into the lake.", "topic")
EXPORT_SEGMENTS = _counter("export_segments", "Segments that were written into the lake.", "topic")
EXPORT_QUARANTINED = _counter("export_quarantined", "Entries that are no message of their topic, kept apart.", "topic")
EXPORT_HOLES = _counter("export_holes", "Times that a stream did not go on where the lake ends.", "topic", "reason")
EXPORT_MISSING = _counter("export_missing_entries", "Entries that were gone before they were exported.", "topic")
EXPORT_RACES = _counter("export_races", "Times that another exporter was faster.")
EXPORT_SUCCESS = _gauge("export_last_success_timestamp_seconds", "When all that was due was last exported.")

# Object store.
OBJECT_SECONDS = _histogram(
    "object_store_seconds", "One call of the object store with its retries.", "call", buckets=_SLOW
)
OBJECT_RETRIES = _counter("object_store_retries", "Calls of the object store that were tried again.", "call")
OBJECT_FAILURES = _counter("object_store_failures", "Calls of the object store that failed, by failure code.", "code")

# Servers.
GRPC_SECONDS = _histogram("grpc_server_seconds", "RPCs served: their count, duration and code.", "method", "code")
GRPC_STREAM_SECONDS = _histogram(
    "grpc_server_stream_seconds", "RPCs served with a stream of answers.", "method", "code", buckets=_SLOW
)
CALLS_REFUSED = _counter(
    "calls_refused", "Connections, requests and streams that a limit of a server refused or ended.", "server", "reason"
)
GATEWAY_SECONDS = _histogram("gateway_seconds", "HTTP requests served, by route template.", "route", "method", "status")
GATEWAY_STREAM_SECONDS = _histogram(
    "gateway_stream_seconds", "HTTP requests with a stream of answers.", "route", "method", "status", buckets=_SLOW
)
GATEWAY_STREAMS = _gauge("gateway_streams", "Open event streams: clients of Server-Sent Events and of JSON lines.")

# The service itself.
COMPONENT_HEALTH = _gauge(
    "component_health", "What the operator found when it last looked: 0 ok, 1 degraded, 2 unhealthy.", "component"
)
LOG_FIELDS_DROPPED = _counter("log_fields_dropped", "Log fields dropped because the allow-list does not know them.")
CHILDREN_RESTARTED = _counter("children_restarted", "Processes of a role that died and were started again.", "role")
DUTY_FAILURES = _counter("duty_failures", "Rounds of a background duty that ended in an error.", "duty")

_HTTP_CODE: Final = re.compile(r"(?:DOWNLOAD|HANDLER)_HTTP_[1-5][0-9]{2}")
_CODES: Final = frozenset(name.removeprefix("FAILURE_CODE_") for name in FailureCode.keys())  # noqa: SIM118  # an enum wrapper
_FAMILIES: Final = frozenset(code.partition("_")[0].lower() for code in _CODES)
_job_types: frozenset[str] = frozenset({"default"})
_flows: frozenset[str] = frozenset()
_STREAMS: Final = frozenset({keys.TASKS, keys.QUEUE})
_queues: frozenset[str] = _STREAMS


def configure(job_types: Iterable[str], queues: Iterable[str] | None = None, flows: Iterable[str] = ()) -> None:
    """Names the job types, lists and flows that may be label values; all others count as `other`.

    None leaves the lists as they are.
    """
    global _job_types, _queues, _flows  # noqa: PLW0603  # the registry is one a process, and so is this
    _job_types = frozenset(job_types) | {"default"}
    _flows = frozenset(flows)
    if queues is not None:
        _queues = frozenset(queues) | _STREAMS


def queue(name: str) -> str:
    """The label value of a queue."""
    return name if name in _queues else OTHER


def reason(code: str) -> str:
    """The kind of a failure code, as a label value: `download`, `storage`, `validation` and so on."""
    family = code.partition("_")[0].lower()
    return family if family in _FAMILIES else OTHER


def job_type(name: str) -> str:
    """The label value of a job type."""
    return name if name in _job_types else OTHER


def flow(name: str) -> str:
    """The label value of a flow."""
    return name if name in _flows else OTHER


def code(name: str) -> str:
    """The label value of a failure code."""
    return name if name in _CODES or _HTTP_CODE.fullmatch(name) else OTHER
