/** The attempts of one job as bars, from its acceptance on. */
import type { Job, JobEvent, LogEntry } from "../api/types";
import { bytes } from "../parts/number";
import { Empty } from "../parts/state";
import { duration, millis } from "../parts/time";
import { type Row, Timeline } from "../parts/timeline";
import { type Resource, resourcesOf } from "./resources";

const MOST = 60;

export function JobTimeline({ job, events, log }: { job: Job; events: JobEvent[]; log: LogEntry[] }) {
  const resources = resourcesOf(log).sort(badFirst);
  const from = millis(job.created_at);
  const ends = [...log.map((entry) => millis(entry.time)), ...events.map((event) => millis(event.ts)), millis(job.updated_at)];
  const to = Math.max(from + 1, ...ends.filter(Number.isFinite));
  if (resources.length === 0) return <Empty>No attempt has ended yet, or the log is gone after its retention.</Empty>;
  return (
    <>
      <Timeline label="Attempts" rows={resources.slice(0, MOST).map(row)} from={from} to={to} />
      {resources.length > MOST && <p class="muted">And {resources.length - MOST} more; those that failed come first.</p>}
    </>
  );
}

function row(resource: Resource): Row {
  const { attempts } = resource;
  const last = attempts[attempts.length - 1];
  const said = [
    resource.outcome === "done" ? "stored" : resource.outcome,
    last?.code,
    `${attempts.length} attempt${attempts.length === 1 ? "" : "s"}`,
    resource.size && bytes(resource.size),
  ];
  return {
    name: resource.id,
    said: said.filter(Boolean).join(", ").replace("stored, 1", resource.id ? "stored, 1" : "done, 1"),
    bars: attempts.map((one, at) => ({
      began: one.began,
      ended: one.ended,
      state: one.outcome,
      said: `attempt ${at + 1}: ${one.outcome} ${one.code} ${duration(one.ended - one.began)}`,
    })),
  };
}

const ORDER = ["failed", "retry", "canceled", "done"];

function badFirst(one: Resource, other: Resource): number {
  return ORDER.indexOf(one.outcome) - ORDER.indexOf(other.outcome);
}
