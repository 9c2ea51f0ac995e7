/** One job: its facts, its attempts as a chart, its events and log as they come, and what can be done about it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { usePoll } from "../api/poll";
import { useStream } from "../api/stream";
import type { Job, JobEvent, LogEntry, TaskJob } from "../api/types";
import { Badge } from "../parts/badge";
import { Command, shell } from "../parts/command";
import { Facts, Json } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Live } from "../parts/live";
import { Failure, Loaded } from "../parts/state";
import { duration, millis, Time } from "../parts/time";
import { href } from "../shell/route";
import type { PageProps } from "./index";
import { JobActions } from "./job_actions";
import { EventList, LogList } from "./job_feed";
import { progress } from "./job_table";
import { JobTimeline } from "./job_timeline";

const ENDED = ["completed", "partial", "failed", "canceled"];

export function JobPage({ route }: PageProps) {
  const id = route.path[1] ?? "";
  const path = encodeURIComponent(id);
  const [isOver, setOver] = useState(false);
  const polled = usePoll<Job>(`/operators/jobs/${path}`, {}, isOver ? 0 : 5000);
  const { round, follow } = useRounds(polled.data?.status);
  const isThere = round > 0;
  const events = useStream<JobEvent>(isThere ? `/operators/jobs/${path}/events` : null, {}, parsed, round);
  const log = useStream<LogEntry>(isThere ? `/operators/jobs/${path}/logs` : null, { follow }, parsed, round);
  const status = polled.data?.status;
  useEffect(() => setOver(status !== undefined && ENDED.includes(status)), [status]);
  useEffect(() => {
    if (events.items.length > 0) polled.reload();
  }, [events.items.length]);
  return (
    <>
      <Heading title={`Job ${id}`} />
      <Loaded polled={polled}>
        {(job) => (
          <>
            <p class="status" role="status">
              <Badge state={job.status} /> {progress(job)}
            </p>
            {job.resource_total > 0 && (
              <progress max={job.resource_total} value={job.resource_completed + job.resource_failed} aria-label="Resources" />
            )}
            <JobActions job={job} done={polled.reload} />
            <JobFacts job={job} />
            {job.task !== "fetch" && job.task !== "step" && <TaskDetails id={id} status={job.status} />}
            <section aria-labelledby="attempts">
              <h2 id="attempts">Attempts</h2>
              <JobTimeline job={job} events={events.items} log={log.items} />
            </section>
            <section aria-labelledby="events">
              <h2 id="events">
                Events <Live state={events.state} />
              </h2>
              {events.error && <Failure error={events.error} />}
              <EventList events={events.items} dropped={events.dropped} />
              <Command line={shell(["fetchbox", "jobs", "watch", id])} />
            </section>
            <section aria-labelledby="log">
              <h2 id="log">
                Log <Live state={log.state} />
              </h2>
              {log.error && <Failure error={log.error} />}
              <LogList log={log.items} dropped={log.dropped} />
              <Command line={shell(["fetchbox", "jobs", "logs", id, "--follow"])} />
            </section>
          </>
        )}
      </Loaded>
    </>
  );
}

/** A job that has ended begins another round when it is replayed; its streams begin anew then. */
function useRounds(status: string | undefined): { round: number; follow: boolean } {
  const [seen, setSeen] = useState({ round: 0, follow: false });
  const before = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (status === undefined) return;
    const isLive = !ENDED.includes(status);
    const wasLive = before.current !== undefined && !ENDED.includes(before.current);
    if (before.current === undefined || (isLive && !wasLive)) setSeen(({ round }) => ({ round: round + 1, follow: isLive }));
    before.current = status;
  }, [status]);
  return seen;
}

function JobFacts({ job }: { job: Job }) {
  const [flowId, stepKey] = (job.flow ?? "").split(" ");
  const took = millis(job.updated_at) - millis(job.created_at);
  return (
    <Facts
      facts={[
        ["Task", job.task],
        ["Job type", job.job_type],
        ["Tenant", job.tenant],
        ["Accepted", <Time at={job.created_at} />],
        ["Changed", <Time at={job.updated_at} />],
        [ENDED.includes(job.status) ? "Took" : "Since", duration(took)],
        ["Error", job.last_error && `${job.last_error.code}: ${job.last_error.message}`],
        ["Flow run", flowId && <a href={href(["flows", flowId], { tenant: job.tenant })}>{flowId} {stepKey}</a>],
        ["Manifest", job.manifest_key && <code>{job.manifest_key}</code>],
        ["Results", job.results_key && <code>{job.results_key}</code>],
        ["Trace", job.trace_id && <code>{job.trace_id}</code>],
      ]}
    />
  );
}

function TaskDetails({ id, status }: { id: string; status: string }) {
  const polled = usePoll<TaskJob>(`/v1/jobs/${encodeURIComponent(id)}`, { at: "" }, ENDED.includes(status) ? 0 : 5000);
  useEffect(() => polled.reload(), [status]);
  return (
    <Loaded polled={polled}>
      {(task) => (
        <section aria-labelledby="payload">
          <h2 id="payload">Payload{task.result ? " and result" : ""}</h2>
          <Json value={task.payload} label="Payload" />
          {Boolean(task.result) && <Json value={task.result} label="Result" />}
        </section>
      )}
    </Loaded>
  );
}

function parsed<T>(message: { type: string; data: string }): T | null {
  return message.type === "hello" || message.type === "stream_error" || message.type === "gap"
    ? null
    : (JSON.parse(message.data) as T);
}
