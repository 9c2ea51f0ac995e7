"""What is worth knowing of runs and gates, by name."""

import json
from collections.abc import Sequence
from typing import Final

from cli.flows.words import between, moment, problem, short
from fetchbox.flow.v1.flow_pb2 import Flow, Gate, Step

RUN_COLUMNS: Final = ("run", "flow", "status", "waits for", "tenant", "started", "took", "tags")
STEP_COLUMNS: Final = ("step", "status", "attempts", "waits for", "took", "logs", "job")


def run_facts(run: Flow) -> dict[str, object]:
    """A run without its steps."""
    return {
        "run": run.flow_id,
        "flow": run.flow_name,
        "status": run.status,
        "waits for": f"{run.waiting_for} at {run.wait_step}" if run.waiting_for else "",
        "until": moment(run.wait_until),
        "tenant": run.tenant,
        "tags": " ".join(run.tags),
        "started": moment(run.started_at),
        "took": between(run.started_at, run.completed_at),
        "log lines": run.logs_count or "",
        "input": short(json.loads(run.input)) if run.HasField("input") else "",
        "result": short(json.loads(run.result)) if run.HasField("result") else "",
        "error": problem(json.loads(run.error)) if run.HasField("error") else "",
    }


def run_row(run: Flow) -> Sequence[object]:
    """A run in a list, under RUN_COLUMNS."""
    return (
        run.flow_id,
        run.flow_name,
        run.status,
        run.waiting_for,
        run.tenant,
        moment(run.started_at),
        between(run.started_at, run.completed_at),
        " ".join(run.tags),
    )


def step_row(step: Step) -> Sequence[object]:
    """A step of a run, under STEP_COLUMNS."""
    return (
        step.step_key,
        step.status,
        step.tries_count or "",
        " ".join(filter(None, (step.waiting_for, step.wait_until and f"until {moment(step.wait_until)}"))),
        between(step.started_at, step.completed_at),
        step.logs_count or "",
        step.job_id,
    )


def gate_facts(gate: Gate) -> dict[str, object]:
    """A gate, as it stands or was settled."""
    return {
        "run": gate.flow_id,
        "step": gate.step_key,
        "reason": gate.reason,
        "state": gate.state,
        "by": gate.by,
        "settled": moment(gate.settled_at),
    }
