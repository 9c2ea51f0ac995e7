/** The workers that hold file jobs, and the one that this gateway reaches with what it does now. */
import { post } from "../api/client";
import { usePoll } from "../api/poll";
import type { FileWorker, Queues, WorkerStatus } from "../api/types";
import { Action } from "../parts/action";
import { Badge } from "../parts/badge";
import { Command } from "../parts/command";
import { Facts } from "../parts/facts";
import { Heading } from "../parts/heading";
import { number } from "../parts/number";
import { Empty, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { age } from "../parts/time";
import { JobLink } from "./job_table";

const COLUMNS: Column<FileWorker>[] = [
  { name: "Worker", cell: (one) => <span class="text">{one.worker_id}</span> },
  { name: "State", cell: (one) => <Badge state={one.alive ? "alive" : "gone"} /> },
  { name: "File jobs held", cell: (one) => number(one.processing), isNumber: true },
  { name: "Last seen", cell: (one) => `${age(one.last_seen_seconds)} ago`, isNumber: true },
];

type Running = WorkerStatus["running"][number];

const RUNNING: Column<Running>[] = [
  { name: "Job", cell: (one) => <JobLink id={one.job_id} /> },
  { name: "Resource", cell: (one) => <span class="text">{one.resource_id}</span> },
  { name: "For", cell: (one) => age(one.running_seconds), isNumber: true },
];

export function WorkersPage() {
  const worker = usePoll<WorkerStatus>("/workers/status", {}, 3000);
  const queues = usePoll<Queues>("/operators/queues", {}, 3000);
  return (
    <>
      <Heading title="Workers" />
      <section aria-labelledby="reached">
        <h2 id="reached">The worker that this gateway reaches</h2>
        <Loaded polled={worker}>{(status) => <Worker status={status} done={worker.reload} />}</Loaded>
        <Command line="fetchbox worker status" />
      </section>
      <section aria-labelledby="all">
        <h2 id="all">All workers</h2>
        <Loaded polled={queues}>
          {({ workers }) =>
            workers.length === 0 ? (
              <Empty>
                No worker is there. <code>fetchbox serve --role=worker</code> starts one.
              </Empty>
            ) : (
              <Table caption="Workers" columns={COLUMNS} rows={workers} id={(one) => one.worker_id} />
            )
          }
        </Loaded>
      </section>
    </>
  );
}

function Worker({ status, done }: { status: WorkerStatus; done: () => void }) {
  const steer = (path: string) => async (): Promise<string> => {
    const now = await post<WorkerStatus>(path, {});
    return `Worker ${now.worker_id} is ${now.state}.`;
  };
  const isRunning = status.state === "running";
  return (
    <>
      <p>
        <Badge state={status.state} /> <span class="text">{status.worker_id}</span>
      </p>
      <div class="buttons">
        {isRunning && (
          <Action label="Pause" question="Pause this one worker?" command="fetchbox worker pause" run={steer("/workers:pause")} done={done}>
            <p>It claims no new work; its {number(status.running.length)} running ones go on.</p>
          </Action>
        )}
        {!isRunning && (
          <Action label="Resume" question="Resume this worker?" command="fetchbox worker resume" run={steer("/workers:resume")} done={done} />
        )}
        <Action label="Drain" question="Drain this one worker?" command="fetchbox worker drain" isDanger run={steer("/workers:drain")} done={done}>
          <p>
            It claims no new work, waits for its {number(status.running.length)} running ones, and gives the rest back. Others
            take that at the cost of no attempt.
          </p>
        </Action>
      </div>
      <Facts
        facts={[
          ["Slots", `${number(status.running.length)} of ${number(status.slots)} in use`],
          ["Completed", number(status.completed)],
          ["Retried", number(status.retried)],
          ["Failed", number(status.failed)],
          ["Last poll", `${age(status.last_poll_age_seconds)} ago`],
        ]}
      />
      {status.running.length > 0 && (
        <Table caption="Running now" columns={RUNNING} rows={status.running} id={(one) => `${one.job_id} ${one.resource_id}`} />
      )}
    </>
  );
}
