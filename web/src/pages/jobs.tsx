/** Jobs by the indexes of the ledger: a page costs the same among ten and among a million. */
import { useState } from "preact/hooks";
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import type { Job, JobPage } from "../api/types";
import { Action } from "../parts/action";
import { shell } from "../parts/command";
import { Filters } from "../parts/filters";
import { Heading } from "../parts/heading";
import { counted, number } from "../parts/number";
import { Pager } from "../parts/pager";
import { Loaded } from "../parts/state";
import { Command } from "../parts/command";
import type { PageProps } from "./index";
import { JobTable } from "./job_table";

const FILTERS = [
  { name: "status", label: "State", options: ["queued", "in_progress", "completed", "partial", "failed", "canceled"] },
  { name: "task", label: "Task", options: ["fetch", "chat", "plan", "code", "tool", "rag", "embed", "step"] },
  { name: "job_type", label: "Job type" },
  { name: "tenant", label: "Tenant" },
];
const LIVE = ["queued", "in_progress"];

export function JobsPage({ route }: PageProps) {
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const given = Object.fromEntries(FILTERS.map(({ name }) => [name, route.params.get(name) ?? ""]));
  const page = route.params.get("page") ?? "";
  const polled = usePoll<JobPage>("/operators/jobs", { ...given, page_size: 50, page_token: page }, page ? 0 : 4000);
  return (
    <>
      <Heading title="Jobs" />
      <Filters route={route} filters={FILTERS} />
      <Loaded polled={polled}>
        {({ jobs = [], counts, next_page_token: next }) => (
          <>
            <p class="muted">
              {jobs.length === 0 ? "None" : counted(jobs.length, "job")} on this page, newest first.
              {counts && given.status && ` ${total(counts, given)}`}
            </p>
            <Chosen jobs={jobs.filter((job) => chosen.has(job.job_id))} done={() => (choose(new Set()), polled.reload())} />
            <JobTable jobs={jobs} caption="Jobs" choice={{ chosen, choose }} />
            <Pager route={route} next={next} />
          </>
        )}
      </Loaded>
      <Command line={listing(given)} />
    </>
  );
}

/** Counts are of a tenant, or of all, whatever the other filters. */
function total(counts: NonNullable<JobPage["counts"]>, given: Record<string, string>): string {
  const count = (counts as unknown as Record<string, string>)[given.status ?? ""];
  const whatever = given.task || given.job_type ? ", whatever their task and type" : "";
  return `${number(count)} ${given.status?.replace("_", " ")} in all${whatever}.`;
}

function Chosen({ jobs, done }: { jobs: Job[]; done: () => void }) {
  const open = jobs.filter((job) => LIVE.includes(job.status)).map((job) => job.job_id);
  if (jobs.length === 0) return null;
  const run = async (): Promise<string> => {
    for (const id of open) await post<Job>(`/operators/jobs/${encodeURIComponent(id)}/cancel`, {});
    return `${counted(open.length, "job")} canceled.`;
  };
  return (
    <div class="buttons">
      <Action
        label={`Cancel ${number(open.length)}`}
        question={`Cancel ${counted(open.length, "job")}?`}
        command={open.map((id) => shell(["fetchbox", "jobs", "cancel", id])).join("\n")}
        isDanger
        isDisabled={open.length === 0}
        run={run}
        done={done}
      >
        <p>
          {counted(jobs.length, "job")} chosen, {number(open.length)} not ended yet. What is stored stays stored.
        </p>
      </Action>
    </div>
  );
}

function listing(given: Record<string, string>): string {
  const flags = Object.entries(given).filter(([, value]) => value);
  return shell(["fetchbox", "jobs", "list", ...flags.flatMap(([name, value]) => [`--${name.replace("_", "-")}`, value])]);
}
