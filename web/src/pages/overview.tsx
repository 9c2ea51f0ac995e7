/** What is going on: health, rates, backlog, and the newest jobs. */
import { useMemo } from "preact/hooks";
import { get } from "../api/client";
import { readHealth } from "../api/health";
import { useReading } from "../api/poll";
import type { Breakers, HealthReport, JobPage, Queues, Streams, WorkerStatus } from "../api/types";
import { Badge } from "../parts/badge";
import { Heading } from "../parts/heading";
import { number } from "../parts/number";
import { Spark } from "../parts/spark";
import { Loaded } from "../parts/state";
import { age, duration } from "../parts/time";
import { href } from "../shell/route";
import { JobTable } from "./job_table";
import { perMinute, type Sample, sampled, sum } from "./samples";

interface Seen {
  health: HealthReport;
  jobs: JobPage;
  streams: Streams;
  queues: Queues;
  breakers: Breakers;
  worker: WorkerStatus | null;
  samples: Sample[];
}

const NEWEST = 10;

async function read(signal: AbortSignal): Promise<Seen> {
  const [health, jobs, streams, queues, breakers, worker] = await Promise.all([
    readHealth(signal),
    get<JobPage>("/operators/jobs", { page_size: NEWEST }, signal),
    get<Streams>("/operators/streams", {}, signal),
    get<Queues>("/operators/queues", {}, signal),
    get<Breakers>("/operators/breakers", {}, signal),
    get<WorkerStatus>("/workers/status", {}, signal).catch(() => null),
  ]);
  return { health, jobs, streams, queues, breakers, worker, samples: sampled(jobs.counts, streams) };
}

export function Overview() {
  const polled = useReading<Seen>("overview", read, 3000);
  return (
    <>
      <Heading title="Overview" />
      <Loaded polled={polled}>
        {(seen) => (
          <>
            <Health report={seen.health} />
            <Counts jobs={seen.jobs} />
            <Charts samples={seen.samples} />
            <Summary seen={seen} />
            <section aria-labelledby="newest">
              <h2 id="newest">Newest jobs</h2>
              <JobTable jobs={seen.jobs.jobs ?? []} caption="The newest jobs" />
            </section>
          </>
        )}
      </Loaded>
    </>
  );
}

export function Health({ report }: { report: HealthReport }) {
  const wrong = report.components.filter((one) => one.status !== "ok");
  return (
    <section class="health" aria-label="Health">
      <p>
        Health <Badge state={report.status} />{" "}
        {wrong.length === 0 && <span class="muted">{report.components.length} components are ok.</span>}
      </p>
      {wrong.map((one) => (
        <p key={one.name}>
          <b>{one.name}</b> <Badge state={one.status} /> {one.message}
        </p>
      ))}
    </section>
  );
}

const STATES = ["queued", "in_progress", "completed", "partial", "failed", "canceled"] as const;

function Counts({ jobs }: { jobs: JobPage }) {
  const { counts } = jobs;
  if (!counts) return <p class="muted">Counts by state are there once the indexes of an older release's jobs are built.</p>;
  return (
    <ul class="cards" aria-label="Jobs by state">
      {STATES.map((state) => (
        <li key={state}>
          <a href={href(["jobs"], { status: state })}>
            <b>{number(counts[state])}</b>
            <Badge state={state} />
          </a>
        </li>
      ))}
    </ul>
  );
}

function Charts({ samples }: { samples: Sample[] }) {
  const ended = useMemo(() => perMinute(samples, (one) => one.ended), [samples]);
  const failed = useMemo(() => perMinute(samples, (one) => one.failed), [samples]);
  const seconds = (value: number): string => (value > 0 ? duration(value * 1000) : "none");
  return (
    <section class="charts" aria-label="Since this page was opened">
      <Spark name="Jobs ended" values={ended} unit=" a minute" form={(value) => number(Math.round(value))} />
      <Spark name="Jobs failed" values={failed} unit=" a minute" form={(value) => number(Math.round(value))} />
      <Spark name="Entries waiting" values={samples.map((one) => one.waiting)} />
      <Spark name="Entries in work" values={samples.map((one) => one.running)} />
      <Spark name="Oldest waits" values={samples.map((one) => one.oldest)} form={seconds} />
    </section>
  );
}

function Summary({ seen }: { seen: Seen }) {
  const { queues, breakers, worker } = seen;
  const open = breakers.breakers.filter((one) => one.state !== "closed");
  const alive = queues.workers.filter((one) => one.alive).length;
  return (
    <ul class="cards" aria-label="Queues, workers and breakers">
      <li>
        <a href={href(["queues"])}>
          <b>{number(sum(queues.queues.map((one) => one.length)))}</b>
          <span>file jobs wait, the oldest {age(Math.max(0, ...queues.queues.map((one) => Number(one.oldest_age_seconds))))}</span>
        </a>
      </li>
      <li>
        <a href={href(["file-dead-letters"])}>
          <b>{number(queues.dead_letters)}</b>
          <span>dead file jobs</span>
        </a>
      </li>
      <li>
        <a href={href(["workers"])}>
          <b>{alive}</b>
          <span>{alive === 1 ? "worker" : "workers"} alive{worker ? `, one ${worker.state} with ${worker.running.length} of ${worker.slots} slots` : ""}</span>
        </a>
      </li>
      <li>
        <a href={href(["breakers"])}>
          <b>{open.length}</b>
          <span>breakers not closed</span>
        </a>
      </li>
    </ul>
  );
}
