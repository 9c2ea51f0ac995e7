/** The attempts at the resources of a fetch job, or of a task job, out of its log. */
import type { LogEntry } from "../api/types";
import { millis } from "../parts/time";

export interface Attempt {
  began: number;
  ended: number;
  outcome: string;
  code: string;
}

export interface Resource {
  id: string;
  attempts: Attempt[];
  outcome: string;
  size: string;
  key: string;
}

export function resourcesOf(log: LogEntry[]): Resource[] {
  const found = new Map<string, Resource>();
  for (const entry of log) {
    const { outcome, duration_ms, code = "", size = "", key = "" } = entry.fields ?? {};
    if (!outcome) continue;
    const id = entry.resource_id;
    const resource = found.get(id) ?? { id, attempts: [], outcome: "", size: "", key: "" };
    const ended = millis(entry.time);
    resource.attempts.push({ began: ended - Number(duration_ms ?? 0), ended, outcome, code });
    found.set(id, { ...resource, outcome, size: size || resource.size, key: key || resource.key });
  }
  return [...found.values()];
}
