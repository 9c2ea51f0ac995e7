import type { Job } from "../api/types";
import { Badge } from "../parts/badge";
import { Empty } from "../parts/state";
import { type Choice, type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { href } from "../shell/route";

/** The last part of an id tells jobs apart; the whole of it is on hover, and in the link. */
export function JobLink({ id }: { id: string }) {
  return (
    <a href={href(["jobs", id])} title={id} class="id">
      {id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id}
    </a>
  );
}

export function progress(job: Job): string {
  if (job.resource_total === 0) return "";
  const failed = job.resource_failed > 0 ? `, ${job.resource_failed} failed` : "";
  return `${job.resource_completed} of ${job.resource_total}${failed}`;
}

const COLUMNS: Column<Job>[] = [
  { name: "Job", cell: (job) => <JobLink id={job.job_id} /> },
  { name: "State", cell: (job) => <Badge state={job.status} /> },
  { name: "Task", cell: (job) => (job.task === "fetch" ? `fetch ${job.job_type}` : job.task) },
  { name: "Tenant", cell: (job) => job.tenant || <span class="muted">–</span> },
  { name: "Resources", cell: (job) => progress(job) || <span class="muted">–</span>, isNumber: true },
  { name: "Error", cell: (job) => (job.last_error ? <span title={job.last_error.message}>{job.last_error.code}</span> : "") },
  { name: "Accepted", cell: (job) => <Time at={job.created_at} /> },
  { name: "Changed", cell: (job) => <Time at={job.updated_at} /> },
];

export function JobTable({ jobs, caption, choice }: { jobs: Job[]; caption: string; choice?: Choice }) {
  if (jobs.length === 0) {
    return (
      <Empty>
        There are no such jobs. <code>fetchbox submit examples/manifest.json</code> submits one.
      </Empty>
    );
  }
  return <Table caption={caption} columns={COLUMNS} rows={jobs} id={(job) => job.job_id} choice={choice} />;
}
