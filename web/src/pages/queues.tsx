/** Where work waits: the partitions of fetch jobs, the queue of task jobs, the priority lists of file jobs. */
import { usePoll } from "../api/poll";
import type { FileQueue, Partition, Queues, Streams } from "../api/types";
import { Badge } from "../parts/badge";
import { Command } from "../parts/command";
import { Facts } from "../parts/facts";
import { Heading } from "../parts/heading";
import { number } from "../parts/number";
import { Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { age } from "../parts/time";
import { isWork } from "./samples";

const WORK: Column<Partition>[] = [
  { name: "Stream", cell: (one) => one.stream },
  { name: "Partition", cell: (one) => number(one.partition), isNumber: true },
  { name: "Waiting", cell: (one) => number(one.waiting), isNumber: true },
  { name: "In work", cell: (one) => number(one.pending), isNumber: true },
  { name: "Delayed", cell: (one) => number(one.delayed), isNumber: true },
  { name: "Oldest", cell: (one) => age(one.oldest_age_seconds), isNumber: true },
  { name: "Length", cell: (one) => number(one.length), isNumber: true },
];
const KEPT: Column<Partition>[] = WORK.filter(({ name }) => ["Stream", "Partition", "Length"].includes(name));
const FILES: Column<FileQueue>[] = [
  { name: "Queue", cell: (one) => one.queue },
  { name: "Priority", cell: (one) => one.priority },
  { name: "Waiting", cell: (one) => number(one.length), isNumber: true },
  { name: "Oldest", cell: (one) => age(one.oldest_age_seconds), isNumber: true },
  { name: "Breaker", cell: (one) => <Badge state={one.breaker} /> },
];

export function QueuesPage() {
  const streams = usePoll<Streams>("/operators/streams", {}, 3000);
  const queues = usePoll<Queues>("/operators/queues", {}, 3000);
  return (
    <>
      <Heading title="Queues" />
      <Loaded polled={streams}>
        {({ partitions }) => (
          <>
            <section aria-labelledby="work">
              <h2 id="work">Fetch jobs and task jobs</h2>
              <Table caption="Partitions of work" columns={WORK} rows={partitions.filter(isWork)} id={named} />
            </section>
            <section aria-labelledby="kept">
              <h2 id="kept">What they publish</h2>
              <Table caption="Partitions of what is published" columns={KEPT} rows={partitions.filter((one) => !isWork(one))} id={named} />
            </section>
          </>
        )}
      </Loaded>
      <Command line="fetchbox streams list" />
      <section aria-labelledby="files">
        <h2 id="files">File jobs</h2>
        <Loaded polled={queues}>
          {(seen) => (
            <>
              <Table caption="Priority lists" columns={FILES} rows={seen.queues} id={(one) => one.queue} />
              <Facts
                facts={[
                  ["Delayed", number(seen.delayed)],
                  ["Completed", number(seen.completed)],
                  ["Dead", number(seen.dead_letters)],
                  ["To be run alone", number(seen.suspects)],
                ]}
              />
            </>
          )}
        </Loaded>
        <Command line="fetchbox files queues" />
      </section>
    </>
  );
}

function named(one: Partition): string {
  return `${one.stream} ${one.partition}`;
}
