/** Dead file jobs: found by code, replayed and purged one by one or all that match. */
import { useState } from "preact/hooks";
import { get, post } from "../api/client";
import { usePoll } from "../api/poll";
import type { FileDeadLetter, FileDeadLetterPage, Purged, ReplayOutcomes } from "../api/types";
import { Action } from "../parts/action";
import { BATCH, BulkAction, summary } from "../parts/bulk";
import { Command, shell } from "../parts/command";
import { Filters } from "../parts/filters";
import { Heading } from "../parts/heading";
import { counted, number } from "../parts/number";
import { Pager } from "../parts/pager";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import type { PageProps } from "./index";
import { tally } from "./outcomes";

const FILTERS = [{ name: "code", label: "Failure code" }];

const COLUMNS: Column<FileDeadLetter>[] = [
  { name: "Code", cell: (one) => <b class="code" title={one.failure_message}>{one.failure_code}</b> },
  { name: "File", cell: (one) => <span class="text">{one.filepath || one.digest}</span> },
  { name: "Queue", cell: (one) => one.queue },
  { name: "Message", cell: (one) => <span class="text">{one.failure_message}</span> },
  { name: "Retries", cell: (one) => number(one.retries), isNumber: true },
  { name: "Replays", cell: (one) => number(one.replays), isNumber: true },
  { name: "Failed", cell: (one) => <Time at={one.failed_at} /> },
];

export function FileDeadLettersPage({ route }: PageProps) {
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const page = route.params.get("page") ?? "";
  const code = route.params.get("code") ?? "";
  const params = { failure_code: code, page_size: 50, page_token: page };
  const polled = usePoll<FileDeadLetterPage>("/operators/files/dlq", params, page ? 0 : 5000);
  const done = (): void => (choose(new Set()), polled.reload());
  const list = shell(["fetchbox", "files", "dlq", ...(code ? ["--code", code] : []), "--limit", String(BATCH)]);
  const every = {
    noun: "dead file job",
    page: async (token: string, signal: AbortSignal) => {
      const all = { failure_code: code, page_size: BATCH, page_token: token };
      const found = await get<FileDeadLetterPage>("/operators/files/dlq", all, signal);
      return { names: found.dead_letters.map((one) => one.digest), next: found.next_page_token };
    },
    done,
  };
  return (
    <>
      <Heading title="Dead files" />
      <p class="muted">File jobs that failed for good. A purge leaves the files themselves where they are.</p>
      <Filters route={route} filters={FILTERS} />
      <Loaded polled={polled}>
        {({ dead_letters: letters = [], next_page_token: next }) =>
          letters.length === 0 ? (
            <Empty>There are no such dead file jobs: nothing to do.</Empty>
          ) : (
            <>
              <Buttons digests={letters.map((one) => one.digest).filter((one) => chosen.has(one))} done={done} />
              <div class="buttons">
                <BulkAction {...every} label="Replay all that match…" verb="Replay" act={replay}
                  command={shell(["fetchbox", "files", "replay", ...(code ? ["--code", code] : ["--all"])])} />
                <BulkAction {...every} label="Purge all that match…" verb="Purge" act={purge} isDanger
                  command={code ? `${list} | tail -n +2 | cut -f1 | xargs fetchbox files purge --yes` : "fetchbox files purge --all"} />
              </div>
              <Table caption="Dead file jobs" columns={COLUMNS} rows={letters} id={(one) => one.digest} choice={{ chosen, choose }} />
              <Pager route={route} next={next} />
            </>
          )
        }
      </Loaded>
      <Command line={list} />
    </>
  );
}

function Buttons({ digests, done }: { digests: string[]; done: () => void }) {
  if (digests.length === 0) return null;
  const count = counted(digests.length, "dead file job");
  return (
    <div class="buttons">
      <Action
        label={`Replay ${number(digests.length)}`}
        question={`Replay ${count}?`}
        command={shell(["fetchbox", "files", "replay", ...digests])}
        run={async () => `${count}: ${summary(await replay(digests))}.`}
        done={done}
      />
      <Action
        label={`Purge ${number(digests.length)}`}
        question={`Purge ${count} for good?`}
        command={shell(["fetchbox", "files", "purge", ...digests])}
        isDanger
        run={async () => `${count}: ${summary(await purge(digests))}.`}
        done={done}
      />
    </div>
  );
}

async function replay(digests: string[], signal?: AbortSignal): Promise<Record<string, number>> {
  return tally((await post<ReplayOutcomes>("/operators/files/dlq:replay", { digests }, signal)).outcomes);
}

async function purge(digests: string[], signal?: AbortSignal): Promise<Record<string, number>> {
  const { purged } = await post<Purged>("/operators/files/dlq:purge", { digests }, signal);
  return { purged, ...(purged < digests.length ? { not_found: digests.length - purged } : {}) };
}
