/** Dead letters of fetch jobs and task jobs: found by code or job, replayed and purged one by one or all that match. */
import { useState } from "preact/hooks";
import { get, post } from "../api/client";
import { usePoll } from "../api/poll";
import type { DeadLetter, DeadLetterPage, Purged, ReplayOutcomes } from "../api/types";
import { Action } from "../parts/action";
import { BATCH, type Bulk, BulkAction, summary } from "../parts/bulk";
import { Command, shell } from "../parts/command";
import { Filters } from "../parts/filters";
import { Heading } from "../parts/heading";
import { counted, number } from "../parts/number";
import { Pager } from "../parts/pager";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import type { PageProps } from "./index";
import { JobLink } from "./job_table";
import { tally } from "./outcomes";

const FILTERS = [
  { name: "code", label: "Failure code" },
  { name: "job", label: "Job" },
];

const COLUMNS: Column<DeadLetter>[] = [
  { name: "Code", cell: (one) => <b class="code" title={one.failure_message}>{one.failure_code}</b> },
  { name: "Job", cell: (one) => <JobLink id={one.job_id} /> },
  { name: "What", cell: (one) => one.task || <span class="text">{one.resource_id}</span> },
  { name: "URL", cell: (one) => <span class="text">{one.url}</span> },
  { name: "Message", cell: (one) => <span class="text">{one.failure_message}</span> },
  { name: "Attempts", cell: (one) => number(one.attempts), isNumber: true },
  { name: "Replays", cell: (one) => number(one.replay), isNumber: true },
  { name: "Failed", cell: (one) => <Time at={one.failed_at} /> },
];

export function DeadLettersPage({ route }: PageProps) {
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const page = route.params.get("page") ?? "";
  const filter = { failure_code: route.params.get("code") ?? "", job_id: route.params.get("job") ?? "" };
  const polled = usePoll<DeadLetterPage>("/operators/dlq", { ...filter, page_size: 50, page_token: page }, page ? 0 : 5000);
  const done = (): void => (choose(new Set()), polled.reload());
  const list = listing(filter);
  return (
    <>
      <Heading title="Dead letters" />
      <p class="muted">Resources and task jobs that failed for good. A replay gives one all its attempts again.</p>
      <Filters route={route} filters={FILTERS} />
      <Loaded polled={polled}>
        {({ dead_letters: letters = [], next_page_token: next }) =>
          letters.length === 0 ? (
            <Empty>There are no such dead letters: nothing to do.</Empty>
          ) : (
            <>
              <Buttons positions={letters.map((one) => one.position).filter((one) => chosen.has(one))} done={done} />
              <div class="buttons">
                <BulkAction {...bulk(filter, list)} label="Replay all that match…" verb="Replay" act={replay} done={done} />
                <BulkAction {...bulk(filter, list)} label="Purge all that match…" verb="Purge" act={purge} done={done} isDanger
                  command={`${list} | tail -n +2 | cut -f1 | xargs fetchbox dlq purge --yes`} />
              </div>
              <Table caption="Dead letters" columns={COLUMNS} rows={letters} id={(one) => one.position} choice={{ chosen, choose }} />
              <Pager route={route} next={next} />
            </>
          )
        }
      </Loaded>
      <Command line={list} />
    </>
  );
}

type Filter = { failure_code: string; job_id: string };

function Buttons({ positions, done }: { positions: string[]; done: () => void }) {
  if (positions.length === 0) return null;
  const count = counted(positions.length, "dead letter");
  return (
    <div class="buttons">
      <Action
        label={`Replay ${number(positions.length)}`}
        question={`Replay ${count}?`}
        command={shell(["fetchbox", "dlq", "replay", ...positions])}
        run={async () => `${count}: ${summary(await replay(positions))}.`}
        done={done}
      />
      <Action
        label={`Purge ${number(positions.length)}`}
        question={`Purge ${count} for good?`}
        command={shell(["fetchbox", "dlq", "purge", ...positions])}
        isDanger
        run={async () => `${count}: ${summary(await purge(positions))}.`}
        done={done}
      />
    </div>
  );
}

function bulk(filter: Filter, list: string): Omit<Bulk, "label" | "verb" | "act" | "done"> {
  return {
    noun: "dead letter",
    command: `${list} | tail -n +2 | cut -f1 | xargs fetchbox dlq replay`,
    page: async (token, signal) => {
      const found = await get<DeadLetterPage>("/operators/dlq", { ...filter, page_size: BATCH, page_token: token }, signal);
      return { names: found.dead_letters.map((one) => one.position), next: found.next_page_token };
    },
  };
}

async function replay(positions: string[], signal?: AbortSignal): Promise<Record<string, number>> {
  return tally((await post<ReplayOutcomes>("/operators/dlq:replay", { positions }, signal)).outcomes);
}

async function purge(positions: string[], signal?: AbortSignal): Promise<Record<string, number>> {
  const { purged } = await post<Purged>("/operators/dlq:purge", { positions }, signal);
  return { purged, ...(purged < positions.length ? { not_found: positions.length - purged } : {}) };
}

function listing(filter: Filter): string {
  const words = ["fetchbox", "dlq", "list"];
  if (filter.failure_code) words.push("--code", filter.failure_code);
  if (filter.job_id) words.push("--job", filter.job_id);
  return shell([...words, "--limit", String(BATCH)]);
}
