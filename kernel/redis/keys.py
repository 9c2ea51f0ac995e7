"""Every Redis key and stream name. No other file spells a key (a test greps for strays).

Other programs use the streams, the job record and the queue of task jobs by these names (docs/messaging.md), so they
stay.
No two things share a key: each part but the last is free of `:`, which separates them (`part`, ADR 0022).
"""

import zlib
from typing import NewType

RunKey = NewType("RunKey", str)
"""The name of a run in keys: its id, behind its tenant where it has one. Runs of two tenants never share one."""

NAMESPACE = "fetchbox."
"""Streams live in this namespace."""

GROUP_WORKERS = "workers"
GROUP_OPERATORS = "operators"

QUEUE = "jobs:stream"
"""The stream of task jobs; as a lane it stands beside the partitions of `jobs.tasks`."""

TASKS = "jobs.tasks"
STATUS = "jobs.status"
LOGS = "jobs.logs"
DLQ = "jobs.dlq"
TOPICS = (TASKS, STATUS, LOGS, DLQ)


def partition_of(job_id: str, partitions: int) -> int:
    """The partition of a job: CRC-32 (IEEE) of the UTF-8 id modulo the count, so that any language can do it."""
    return zlib.crc32(job_id.encode()) % partitions


def part(text: str) -> str:
    """A part of a key: percent-encoded where it holds `:` or `%`, so that it ends where the next one begins."""
    return text.replace("%", "%25").replace(":", "%3A") if "%" in text or ":" in text else text


def stream(topic: str, partition: int) -> str:
    """`fetchbox.jobs.tasks:0`: one partition of a topic."""
    return f"{NAMESPACE}{topic}:{partition}"


def lease(lane: str) -> str:
    """Sorted set of a lane: worker -> when its lease ends, in ms of Redis time."""
    return f"{{{lane}}}:lease"


def delayed(lane: str) -> str:
    """Sorted set of a lane: entry -> when its next attempt is due, in ms of Redis time."""
    return f"{{{lane}}}:delayed"


def redo(lane: str) -> str:
    """Hash of a lane: entry -> `attempts:crashes`."""
    return f"{{{lane}}}:redo"


def outbox(lane: str) -> str:
    """Sorted set of a lane: job accepted but perhaps not yet published -> since when, in ms of Redis time."""
    return f"{{{lane}}}:outbox"


def finals(lane: str) -> str:
    """Sorted set of a lane: job whose finalization is due -> when it may next be tried, in ms of Redis time."""
    return f"{{{lane}}}:finals"


def replays(lane: str) -> str:
    """Sorted set of a lane: replay whose task was added -> when, in ms of Redis time."""
    return f"{{{lane}}}:replays"


def cursors(lane: str) -> str:
    """Hash of a stream: reader that retention must not overtake -> the last entry it has.

    For the exporter also `exporter:epoch`, and `exporter:seen`, when it was last there, in ms of Redis time. That of
    `FLOWS_ENDED` is the time of an end, `{ms}-1`; `{ms}-0` is before all that ended at that time. `group:{name}` is
    up to where that group has acknowledged everything, as retention last saw it.
    """
    return f"{{{lane}}}:cursors"


def job(job_id: str) -> str:
    """Hash: the record of a job."""
    return f"job:{part(job_id)}"


def job_events(job_id: str) -> str:
    """Stream: the events of a job."""
    return f"job:{part(job_id)}:events"


def job_bits(job_id: str) -> str:
    """Bitmap: bit `resource_index - 1` is set once that resource is settled."""
    return f"job:{part(job_id)}:bits"


def job_resources(job_id: str) -> str:
    """Hash: fences, failures and settled resources that have no index."""
    return f"job:{part(job_id)}:resources"


def job_results(job_id: str) -> str:
    """List: one line a settled task, kept until the job's finalization has read them."""
    return f"job:{part(job_id)}:results"


def manifest_idempotency(tenant: str, job_type: str, key: str) -> str:
    """Hash: the submit of a manifest under an idempotency key; scope tenant + job type + key."""
    return f"fetchbox:idempotency:{part(tenant)}:{part(job_type)}:{key}"


def job_index() -> str:
    """Sorted set: every job -> when it was accepted, in ms."""
    return "fetchbox:jobs"


STATES = "fetchbox:jobs:states"
"""Sorted set: every job -> its state and when it was accepted, as `ledger/state_index.py` tells.

The scripts that move a job keep it, in the same step. `{STATES}-tenants` is a hash: job with a tenant -> tenant.
"""


def states_of(tenant: str) -> str:
    """Sorted set: the same for the jobs of one tenant."""
    return f"{STATES}:{tenant}"


STATES_BUILT = "fetchbox:jobs:states-entered"
"""String: how far the jobs of older releases have been entered in the indexes by state; `all` once it is done."""

UNPUBLISHED = "fetchbox:jobs:unpublished"
"""Sorted set: job whose end or replay is still to be published -> when that was, in ms of Redis time."""


def ended_index() -> str:
    """Sorted set: every ended job -> when it ended, in ms; the pruner starts here."""
    return "fetchbox:jobs:ended"


def open_index() -> str:
    """Sorted set: jobs without a known total -> their last news, in ms; the idle timeout starts here."""
    return "fetchbox:jobs:open"


def task_idempotency(tenant: str, key: str) -> str:
    """Hash: the creation of a task job under an idempotency key; without a tenant it is `idempotency:{key}`.

    Gateways beside FetchBox use that one, too. No key of a caller without a tenant is that of a tenant: those begin
    otherwise.
    """
    return f"fetchbox:task-idempotency:{part(tenant)}:{key}" if tenant else f"idempotency:{key}"


def routed(task: str) -> str:
    """The consumer of the queue under which tasks lie that only workers elsewhere run."""
    return f"_for.{task}"


SLOTS = "_for.slots"
"""The consumer of the queue under which tasks lie that were read by one who has no slots, for those who have."""

DELAYED = "_delayed"
"""The consumer of a lane under which entries lie whose next attempt is not due yet."""

RETURNED = "_returned"
"""The consumer under which entries lie that were given back unrun."""


def solo(consumer: str) -> str:
    """The consumer under which a worker holds what runs alone, after crashes."""
    return f"{consumer}.solo"


def open_tasks() -> str:
    """Hash: task -> how many entries of ours are on the queue for it, waiting or in work."""
    return f"{{{QUEUE}}}:open"


def noted_tasks() -> str:
    """Hash: task -> how many jobs of it are in the outbox of the queue, admitted and not yet made."""
    return f"{{{QUEUE}}}:noted"


JOBS_AUDIT = "fetchbox:jobs:audit"
"""String with an expiry: somebody has looked for jobs that are on no stream so lately that nobody else need."""

JOBS_AUDITED = "fetchbox:jobs:audited"
"""Hash: state -> how far the search for its jobs that are on no stream has come, a cursor of ZSCAN."""


def counting_tasks() -> str:
    """Hash: what is known of the counts in `open_tasks`.

    `removed`: how many entries we took off the queue; `drift`: how many others had when it was last counted. While it
    is counted anew: `at`, how far, and `n:{task}`, what so far.
    """
    return f"{{{QUEUE}}}:counting"


QUEUE_PLACES = (QUEUE, redo(QUEUE), delayed(QUEUE), open_tasks(), counting_tasks())
"""The keys that a script needs to take entries off the queue."""


def expiring_index() -> str:
    """Sorted set: jobs whose record expires by itself -> when to look whether it has, in ms."""
    return "fetchbox:jobs:expiring"


def host_gate(host: str) -> str:
    """String with an expiry: the whole fleet leaves this host alone for so long (`Retry-After`)."""
    return f"fetchbox:host:{host}:gate"


def rate_limit(tenant: str, what: str = "submits") -> str:
    """String with an expiry: how much of something a tenant has done in this second."""
    return f"fetchbox:rate:{part(tenant)}:{what}"


def provisioned() -> str:
    """Hash: `{topic}:partitions`, `{topic}:retention_ms` and `{topic}:max_bytes` of the provisioned topics."""
    return "fetchbox:streams"


def of_worker(pattern: str, worker: str) -> str:
    """A key of one worker by a configured pattern, `%s` being its id."""
    return pattern.replace("%s", worker)


FILE_WORKERS = "jobqueue:workers"
"""Sorted set: worker of file jobs -> when it was last known to be alive, in ms of Redis time."""

FILE_DELAYED = "jobqueue:delayed"
"""Sorted set: `{unique}|{queue}|{job}` -> when that file job may be tried again, in ms of Redis time."""

FILE_CRASHES = "jobqueue:crashes"
"""Hash: SHA-1 of a file job -> how often it has lost its worker."""

FILE_SUSPECTS = "jobqueue:suspects"
"""List: file jobs that have one crash left, each to be run alone."""


def file_batch(life: str) -> str:
    """String with an expiry: number and results of a worker's last settlements of file jobs, in this life of it."""
    return f"jobqueue:batch:{life}"


def file_marks(name: str) -> str:
    """Sorted set of a list that only grows: how many entries it has ever had -> since when, in ms of Redis time."""
    return f"{name}:marks"


def file_answer(call: str) -> str:
    """String with an expiry: what a call on the dead file jobs came to; while it runs, what marks those that go."""
    return f"jobqueue:answer:{call}"


def file_seen(bucket: int) -> str:
    """Hash: digest of a path -> digest of the file that was enqueued under it; one of many buckets."""
    return f"jobqueue:seen:{bucket}"


_BREAKERS = "fetchbox:breakers"


def breaker(name: str) -> str:
    """Hash: state and window of a circuit breaker. All that belongs to breakers is in one cluster slot."""
    return f"{{{_BREAKERS}}}:{name}"


def breaker_index() -> str:
    """Sorted set: circuit breakers that have something to tell -> when that is over, in ms of Redis time."""
    return _BREAKERS


def breakers_shut() -> str:
    """Sorted set: circuit breakers that are not closed -> when their cooldown ends, in ms of Redis time."""
    return f"{{{_BREAKERS}}}.shut"


def breakers_turn() -> str:
    """String: when a circuit breaker last opened or closed, in microseconds of Redis time."""
    return f"{{{_BREAKERS}}}.turn"


PROBE = "fetchbox:probe"
"""String with an expiry: written by whoever asks whether Redis takes writes."""


def run(tenant: str, flow_id: str) -> RunKey:
    """The name of a run in keys: `flow_id` without a tenant, `tenant:flow_id` with one."""
    return RunKey(f"{part(tenant)}:{part(flow_id)}" if tenant else part(flow_id))


def run_parts(key: RunKey) -> tuple[str, str]:
    """The tenant and the id of a run by its name in keys."""
    tenant, _, flow_id = key.rpartition(":")
    return _whole(tenant), _whole(flow_id)


def _whole(encoded: str) -> str:
    return encoded.replace("%3A", ":").replace("%25", "%")


NO_RUN = RunKey("")
"""The name of no run."""


def flow_timeline(key: RunKey) -> str:
    """Stream: everything that happened in a run."""
    return f"nq:flow:{key}"


def flow_snapshot(flow_name: str, key: RunKey) -> str:
    """Stream: patches of a run's snapshot."""
    return f"nq:proj:flow:{part(flow_name)}:{key}"


def flow_steps(key: RunKey) -> str:
    """Stream: patches of the steps of a run."""
    return f"nq:proj:flow-steps:{key}"


def flow_runs(flow_name: str) -> str:
    """Stream: the runs of a flow, those of all tenants."""
    return f"nq:proj:flow-runs:{flow_name}"


def flow_logs(key: RunKey) -> str:
    """Stream: references to the log lines of a run's steps."""
    return f"nq:proj:flow-step-index:{key}"


FLOW = "fetchbox:flow:"
"""What the keys of the orders of runs begin with."""


def flow(key: RunKey) -> str:
    """Hash: the order of a run (definition, input, tenant), its fence, and what came for its gates."""
    return f"{FLOW}{key}"


def flow_early(key: RunKey) -> str:
    """List: log lines of a run whose attempts have not begun yet, as its timeline tells it; the oldest first."""
    return f"fetchbox:flows:early:{key}"


def flow_tenants(flow_id: str) -> str:
    """Set: the tenants that have a run of this id."""
    return f"fetchbox:flows:tenants:{flow_id}"


FLOWS_DUE = "fetchbox:flows:due"
"""Sorted set: run that an engine is to look at -> when, in ms of Redis time."""

FLOWS_HELD = "fetchbox:flows:held"
"""Hash: run that an engine has -> its lease, the ms of Redis time at which that ends."""

FLOWS_WAKE = "fetchbox:flows:wake"
"""Stream of one entry: grows when a run is to be looked at at once; engines wait on it. Only a hint, as they look each
second anyway: no script fails where it cannot grow."""

FLOWS_AUDIT = "fetchbox:flows:audit"
"""String with an expiry: an engine has looked for lost runs so lately that no other need."""

FLOWS_AUDITED = "fetchbox:flows:audited"
"""String: how far the search for lost runs has come; none when it begins anew."""

FLOWS_ENDED = "fetchbox:flows:ended"
"""Sorted set: run that has ended -> when, in ms of Redis time, no two at the same; retention and export start here."""

FLOW_NAMES = "fetchbox:flows:names"
"""Set: the names of flows that have runs."""

FLOW_PAYLOADS = "fetchbox:flows:payloads"
"""Sorted set: bucket with payloads that are of no one run -> when one was last stored there, in ms."""


def gate_free(digest: str) -> str:
    """Sorted set: gates of one channel and key that open without a secret, `run/step_key` -> since when, in ms."""
    return f"fetchbox:gate:{digest}:free"


def gate_guarded(digest: str) -> str:
    """Sorted set: gates of one channel and key that open with a secret, `run/step_key` -> since when, in ms."""
    return f"fetchbox:gate:{digest}:guarded"


GATE_PARKED = "fetchbox:gate-parked:"
"""What the names of streams with an expiry begin with: events and webhooks that came before their gate. What they open
follows, a channel and key or a secret."""


def gate_answer(call: str) -> str:
    """String with an expiry: what a call of a delivery came to, and for which channel and key."""
    return f"fetchbox:gate-answer:{call}"


def webhook_delivery(channel: str, delivery_id: str) -> str:
    """String with an expiry: which webhook of a channel had this id (`X-GitHub-Delivery`)."""
    return f"fetchbox:webhook-delivery:{part(channel)}:{delivery_id}"
