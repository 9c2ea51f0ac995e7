// BullMQ's side of benchmarks/tasks.py; the commands and answers are those of benchmarks/peers/drive.py.
// usage: BENCH_PORT=… BENCH_SLOTS=… node tasks.mjs worker | enqueue JOBS PARALLEL | bulk JOBS BATCH
//        | latency JOBS PAUSE | finished
import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

// The prefix is the default; finished jobs are kept, which is the default, and its events are on, which they always are.
const connection = { host: "127.0.0.1", port: Number(process.env.BENCH_PORT), maxRetriesPerRequest: null };
const [command, ...given] = process.argv.slice(2);
const [jobs, second] = given.map(Number);
const WARM_UP = 100;
const payload = (number) => ({ messages: [{ role: "user", content: `Say hello to number ${number}` }], number });
const require = createRequire(import.meta.url);
const versions = `bullmq ${require("bullmq/package.json").version}, node ${process.versions.node}`;

async function enqueue(queue) {
  let number = 0;
  const some = async (until) => {
    while (number < until) await queue.add("noop", payload(number++));
  };
  await some(WARM_UP);
  const started = performance.now();
  await Promise.all(Array.from({ length: second }, () => some(jobs)));
  return { per_second: ((jobs - WARM_UP) * 1000) / (performance.now() - started) };
}

async function bulk(queue) {
  const started = performance.now();
  for (let at = 0; at < jobs; at += second) {
    const length = Math.min(second, jobs - at);
    await queue.addBulk(Array.from({ length }, (_, i) => ({ name: "noop", data: payload(at + i) })));
  }
  return { per_second: (jobs * 1000) / (performance.now() - started) };
}

async function latency(queue) {
  const client = await queue.client;
  const ms = [];
  for (let number = 0; number < jobs; number++) {
    const started = performance.now();
    const job = await queue.add("noop", payload(number));
    while ((await client.zscore("bull:noop:completed", job.id)) === null) await sleep(1);
    ms.push(performance.now() - started);
    await sleep(second * 1000);
  }
  return { ms };
}

if (command === "worker") {
  const worker = new Worker("noop", async () => {}, { connection, concurrency: Number(process.env.BENCH_SLOTS) });
  process.once("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
} else {
  const queue = new Queue("noop", { connection });
  const finished = async () => ({ finished: await queue.getCompletedCount() });
  const told = await { enqueue, bulk, latency, finished }[command](queue);
  await queue.close();
  console.log(JSON.stringify({ ...told, versions }));
}
