"""The Lua scripts: one for each transition, declared here with the names of their keys and arguments.

Every script is a file of `kernel/redis/lua`, headed by its KEYS, ARGV and returns; a test holds each header against the
declaration below. All keys of one call share one cluster slot. Time is Redis `TIME`, never a caller's clock.
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

_FOLDER = Path(__file__).parent / "lua"
_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)


def _part(include: re.Match[str]) -> str:
    """What several scripts share stands in `kernel/redis/lua/parts`."""
    return (_FOLDER / "parts" / f"{include[1]}.lua").read_text(encoding="utf-8").rstrip()


@dataclass(frozen=True, slots=True)
class Script:
    """One script. All of them may be repeated: a repetition changes nothing more and tells how things stand."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    each: tuple[str, ...] = ()
    """Arguments that follow once for each item."""
    is_permitted: bool = False
    """Its work was accepted before, and so it is permitted when memory is short, whatever the file says."""
    source: str = field(init=False, repr=False)
    sha: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        source = _INCLUDE.sub(_part, (_FOLDER / f"{self.name}.lua").read_text(encoding="utf-8"))
        if self.is_permitted:
            source = source.replace("#!lua\n", "#!lua flags=allow-oom\n", 1)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "sha", hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


_JOB = ("job", "events", "bits", "resources")
_LANE = ("lane", "lease", "redo")
_BEGINS = ("due", "wake", "states")
"""What moves a job tells the engine of flows of it, where the job is an attempt at a step, and keeps the indexes."""
_ENDS = (*_BEGINS, "unpublished")
"""What ends a job, or opens it again, also notes that this is to be published; `NOTE` does it for `TASK_SETTLE`."""

# The submit.
SUBMIT_BEGIN = Script("submit_begin", ("submit",), ("digest", "job_id", "lease_ms", "window_ms"))
SUBMIT_FINISH = Script("submit_finish", ("submit",), ("job_id", "answer"))
SUBMIT_FORGET = Script("submit_forget", ("submit",), ("job_id", "by"))
OUTBOX = Script("outbox", ("outbox",), ("job_id",))
ACCEPT = Script("accept", ("job", "events", "states", "outbox"), ("step", "tenant"), ("field", "value"))
PUBLISH = Script("publish", ("lane", "outbox", "job"), ("job_id", "last", "traceparent"), ("payload",))
REPUBLISH = Script("republish", ("job", "lane"), ("published", "updated_ms"), ("payload", "lost"))
PUBLISH_ONCE = Script("publish_once", ("lane", "replays"), ("once", "keep_ms", "recorded", "traceparent", "payload"))

# The creation of a task job.
TASK_ADMIT = Script(
    "task_admit", ("stream", "outbox", "open", "noted"), ("max_backlog", "whole"), ("task", "job_id", "task_max")
)
TASK_ACCEPT = Script(
    "task_accept",
    ("job", "events", "queue", "outbox", "open", "noted", "jobs", "expiring", "states", "submit"),
    (
        *("task", "job_id", "payload", "traceparent", "flow", "step"),
        *("admitted_ms", "ttl_s", "fresh_ms", "answer", "tenant"),
    ),
    ("field", "value"),
)
TASK_RECALL = Script(
    "task_recall",
    ("job", "queue", "outbox", "open", "noted", "redo", "delayed", "lease", "replays"),
    ("task", "job_id", "group", "longest_ms", "swept"),
)
STEP_ADMIT = Script("task_admit", TASK_ADMIT.keys, TASK_ADMIT.args, TASK_ADMIT.each, is_permitted=True)
"""Jobs of runs that were accepted."""
TASK_TIDY = Script("task_tidy", ("lane",), ("group", "after", "max"), ("name",))
TASK_RETURN = Script("task_return", ("lane",), ("group",), ("entry",))

# The lane.
GONE = Script("gone", ("stream",), (), ("entry",))
LANE_AUDIT = Script("lane_audit", (*_LANE, "delayed"), ("group", "after", "to", "max", "longest_ms", "drops"))
PROVISION = Script("provision", ("lane", "cursors"), ("group",))
INDEX = Script("index", ("index",), ("mode",), ("score", "member"))
UNINDEX = Script("unindex", ("index",), (), ("score", "member"))
BEAT = Script("beat", ("lease",), ("worker", "ttl_ms", "first"))
BYE = Script("bye", ("lane", "lease"), ("group", "worker"))
REAP = Script("reap", _LANE, ("group", "worker", "max", "crash_limit", "unregistered_ms"), ("task", "to"))
SUSPECT = Script("suspect", _LANE, ("group", "worker"))
DUE = Script("due", ("lane", "lease", "redo", "delayed"), ("group", "worker", "max"))
DEFER = Script("defer", ("job", "events"), ("step", "data", "every_ms"))
PARK = Script("park", ("lane", "redo", "delayed"), ("group",), ("worker", "entry", "delay_ms", "attempts", "crashes"))
ACKNOWLEDGE = Script("acknowledge", ("lane", "redo", "delayed"), ("group",), ("entry",))
GIVE_BACK = Script("give_back", ("lane",), ("group", "worker"), ("entry",))
TRANSFER = Script("transfer", ("lane", "lease"), ("group", "holder", "from", "to"), ("entry",))
ROUTE = Script("route", ("lane",), ("group", "worker"), ("entry", "to"))
COLLECT = Script("collect", _LANE, ("group", "worker", "max", "suspect", "empty"), ("from",))
LENT = Script("lent", _LANE, ("group", "holder", "from", "to", "max"), ("consumer",))
TASK_ACKNOWLEDGE = Script(
    "task_acknowledge", ("lane", "redo", "delayed", "open", "counting"), ("group",), ("entry", "counted")
)
TASK_COUNT = Script("task_count", ("queue", "open", "counting"), ("max",))
QUEUE_ONCE = Script(
    "queue_once",
    ("queue", "replays", "open", "outbox", "noted", "job"),
    ("once", "keep_ms", "since_ms", "counted", "job_id"),
    ("field", "value"),
)
APPEND = Script("append", ("stream",), (), ("payload",))
FINALS = Script("finals", ("finals",), ("max", "again_ms"))
TRIM = Script("trim", ("lane", "cursors"), ("keep_ms", "hold_ms", "max_len", "max"))
SHED = Script("shed", ("stream", "cursors"), ("keep_ms", "hold_ms", "max_len", "max"))
EXPORT_NOTE = Script("export_note", ("cursors",), ("position", "epoch", "denied position", "denied epoch"))

# The job.
START = Script(
    "start",
    (*_JOB, *_BEGINS),
    ("worker", "step", "finalizes", "create"),
    ("index", "resource_id", "token"),
)
SETTLE = Script(
    "settle",
    (*_JOB, "results", *_ENDS),
    ("finalizes", "step", "deferred_every_ms"),
    ("index", "resource_id", "token", "outcome", "error", "detail"),
)
TASK_START = Script(
    "task_start", ("job", "events", *_BEGINS), ("worker", "step", "delivery", "token", "attempt", "again", "entry")
)
NOTE = Script("note", ("unpublished",), (), ("job_id",))
TASK_EVENTS = Script("task_events", ("job", "events"), ("token", "step", "first"), ("type", "data"))
TASK_SETTLE = Script(
    "task_settle",
    ("job", "events", *_BEGINS),
    ("token", "step", "outcome", "value", "data", "ttl_s", "deferred_every_ms"),
)
TASK_REPLAY = Script(
    "task_replay",
    ("job", "events", "outbox", "noted", "states", "unpublished"),
    ("task", "job_id", "expected_replay", "max_replays", "step"),
    ("field", "value"),
)
EXPIRE = Script("expire", ("job", "events"), ("ttl_s",))
FINAL_BEGIN = Script("final_begin", ("job",), ("worker", "lease_ms"))
FINAL_END = Script("final_end", (*_JOB, "results", *_ENDS), ("worker", "generation", "step", "results_key", "error"))
CANCEL = Script(
    "cancel",
    ("job", "events", *_ENDS, "queue", "redo", "delayed", "open", "counting"),
    ("step", "error", "ttl_s", "group"),
)
REPLAY = Script(
    "replay",
    (*_JOB, "states", "unpublished"),
    ("resource_id", "index", "expected_replay", "max_replays", "step", "resource_json"),
)
MIRROR = Script(
    "mirror",
    ("job", "events", *_ENDS),
    ("step", "status", "completed", "failed", "total", "revision", "error"),
    ("field", "value"),
)
CLOSE = Script("close", ("job", "events", *_ENDS), ("step", "idle_ms", "error"))
DELETE = Script("delete", (*_JOB, "results", "states"), ("ended_before_ms",))
RELIST = Script("relist", ("states",), (), ("job",))

# The priority lists.
FILE_KNOWN = Script("file_known", ("seen",), ("tag",), ("field", "state"))
FILE_ENQUEUE = Script(
    "file_enqueue",
    ("limit", "seen", "queue"),
    ("per_second", "max_backlog", "tag"),
    ("field", "state", "before", "payload"),
)
FILE_FORGET = Script("file_forget", ("seen",), ("tag", "keep_hours", "cursor"))
FILE_REAP = Script(
    "file_reap",
    ("workers", "heartbeat", "processing", "solo", "crashes", "suspects", "dead_letters", "queue"),
    ("worker", "ttl_ms", "max", "crash_limit"),
    ("priority",),
)
FILE_BEAT = Script("file_beat", ("heartbeat", "workers"), ("worker", "ttl_ms", "first", "about"))
FILE_TAKE = Script("file_take", ("heartbeat", "processing", "suspects", "queues"), ("max", "low", "turn"), ("most",))
FILE_SETTLE = Script(
    "file_settle",
    (
        *("batch", "processing", "solo", "completed", "dead_letters"),
        *("delayed", "crashes", "suspects", "queues"),
    ),
    ("number", "keep_ms"),
    ("kind", "from", "job", "to", "value", "wait_ms", "name"),
)
FILE_DUE = Script("file_due", ("delayed", "suspects", "queues"), ("max",))
FILE_BYE = Script("file_bye", ("heartbeat", "workers", "processing", "solo", "batch"), ("worker",))
FILE_REPLAY = Script("file_replay", ("dead_letters", "answer", "queue"), ("keep_ms",), ("place", "digest", "to", "job"))
FILE_PURGE = Script("file_purge", ("dead_letters", "answer"), ("keep_ms",), ("place", "digest"))
FILE_RETAIN = Script("file_retain", ("list", "marks"), ("max_count", "max_age_ms", "max"))

# Breakers.
BREAKER_ASK = Script(
    "breaker_ask",
    ("breaker", "shut"),
    ("name", "token", "probe_ms", "keep_ms", "cooldown_ms", "bucket_ms", "buckets"),
)
BREAKER_RECORD = Script(
    "breaker_record",
    ("breaker", "shut", "index", "turn"),
    (
        *("name", "writer", "seq", "successes", "failures", "bucket_ms", "buckets"),
        *("threshold", "min_samples", "cooldown_ms", "keep_ms"),
    ),
)
BREAKER_CONCLUDE = Script(
    "breaker_conclude",
    ("breaker", "shut", "index", "turn"),
    ("name", "token", "verdict", "cooldown_ms", "keep_ms"),
)

# Flows.
FLOW_OPEN = Script(
    "flow_open", ("flow", "due", "wake", "names", "tenants"), ("run", "name", "tenant", "digest"), ("field", "value")
)
FLOW_APPEND = Script(
    "flow_append",
    ("flow", "timeline", "snapshot", "steps", "logs", "runs", "due", "wake", "ended", "early"),
    ("run", "name", "fence", "signal", "end", "max_logs", "clears", "batch"),
    ("target", "kind", "subject", "meta", "data", "attempt"),
)
FLOW_TRIM = Script("flow_trim", ("flow", "timeline", "logs"), ("max_len", "archived", "max"))
FLOW_FORGET = Script(
    "flow_forget",
    ("flow", "timeline", "snapshot", "steps", "logs", "runs", "ended", "tenants", "early"),
    ("run", "ended_before_ms", "tenant"),
    ("entry",),
)
FLOW_CLAIM = Script("flow_claim", ("due", "held"), ("max", "lease_ms"))
FLOW_REST = Script("flow_rest", ("due", "held"), (), ("run", "lease", "next_ms"))
FLOW_SECRET = Script("flow_secret", ("flow",), ("step_key", "secret", "max"))
FLOW_HIT = Script("flow_hit", ("flow", "due", "wake"), ("run", "step_key", "fence", "delivery"))
FLOW_WAIT = Script(
    "flow_wait",
    ("flow", "free", "guarded", "parked", "due", "wake"),
    ("run", "step_key", "fence", "digest", "open", "keep_ms"),
)
FLOW_DELIVER = Script(
    "flow_deliver",
    ("flow", "free", "guarded", "parked", "answer", "due", "wake"),
    (
        *("digest", "delivery", "opens", "run", "step_key", "parks"),
        *("max_parked", "keep_ms", "max", "answer_ms"),
    ),
)

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Script))
"""Every script there is."""
