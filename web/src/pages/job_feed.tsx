/** The events and the log of a job, newest last; the newest are shown, the rest on demand. */
import { useState } from "preact/hooks";
import type { JobEvent, LogEntry } from "../api/types";
import { Badge } from "../parts/badge";
import { number } from "../parts/number";
import { Empty } from "../parts/state";
import { Time } from "../parts/time";

const SHOWN = 100;

export function EventList({ events, dropped }: { events: JobEvent[]; dropped: number }) {
  const [isAll, setAll] = useState(false);
  const lines = joined(events);
  const shown = isAll ? lines : lines.slice(-SHOWN);
  if (lines.length === 0) return <Empty>No event yet.</Empty>;
  return (
    <>
      <Earlier count={lines.length - shown.length} dropped={dropped} show={() => setAll(true)} />
      <ol class="feed">
        {shown.map((event) => (
          <li key={event.id}>
            <Time at={event.ts} short /> <Badge state={event.type} /> <span class="text">{said(event.data)}</span>
          </li>
        ))}
      </ol>
    </>
  );
}

/** The tokens of a text are one line, as they are read. */
function joined(events: JobEvent[]): JobEvent[] {
  const lines: JobEvent[] = [];
  for (const event of events) {
    const last = lines[lines.length - 1];
    if (event.type === "token" && last?.type === "token") {
      lines[lines.length - 1] = { ...last, data: { text: text(last.data) + text(event.data) } };
    } else lines.push(event);
  }
  return lines;
}

function text(data: unknown): string {
  const found = (data as { text?: unknown } | null)?.text;
  return typeof found === "string" ? found : "";
}

/** The data of an event in words: `attempt 1, code DOWNLOAD_DNS`. */
function said(data: unknown): string {
  if (typeof data !== "object" || data === null) return data === undefined ? "" : String(data);
  return Object.entries(data)
    .map(([name, value]) => (name === "text" ? String(value) : `${name} ${plain(value)}`))
    .join(", ");
}

function plain(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function LogList({ log, dropped }: { log: LogEntry[]; dropped: number }) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? log : log.slice(-SHOWN);
  if (log.length === 0) return <Empty>The log has no line yet.</Empty>;
  return (
    <>
      <Earlier count={log.length - shown.length} dropped={dropped} show={() => setAll(true)} />
      <ol class="feed">
        {shown.map((entry) => (
          <li key={entry.offset}>
            <Time at={entry.time} short /> <Badge state={entry.level} /> {entry.resource_id && <b>{entry.resource_id} </b>}
            <span class="text" title={fields(entry)}>
              {entry.message}
            </span>{" "}
            {entry.fields?.final_url && <span class="muted">{entry.fields.final_url}</span>}
          </li>
        ))}
      </ol>
    </>
  );
}

function fields(entry: LogEntry): string {
  return Object.entries(entry.fields ?? {})
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}

function Earlier({ count, dropped, show }: { count: number; dropped: number; show: () => void }) {
  return (
    <>
      {count > 0 && (
        <button type="button" onClick={show}>
          Show {number(count)} earlier
        </button>
      )}
      {dropped > 0 && <p class="muted">{number(dropped)} older ones are not kept here; the command below has them.</p>}
    </>
  );
}
