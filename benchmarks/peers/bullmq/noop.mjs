// BullMQ's side of benchmarks/lane.py: the same number of no-op jobs on the same Redis, one worker process.
// usage: node noop.mjs PORT JOBS SLOTS TIMEOUT_SECONDS; prints one line of JSON.
import { performance } from "node:perf_hooks";
import { Queue, Worker } from "bullmq";

const [port, jobs, slots, timeout] = process.argv.slice(2).map(Number);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const queue = new Queue("noop", { connection });

async function enqueue(name, count) {
  for (let at = 0; at < count; at += 1000) {
    const batch = Array.from({ length: Math.min(1000, count - at) }, (_, i) => ({ name, data: { i: at + i } }));
    await queue.addBulk(batch);
  }
}

function run(count) {
  return new Promise((resolve, reject) => {
    let seen = 0;
    const worker = new Worker("noop", async () => {}, { connection, concurrency: slots });
    const alarm = setTimeout(() => reject(new Error(`only ${seen} of ${count} within ${timeout} s`)), timeout * 1000);
    worker.on("completed", () => {
      if (++seen === count) {
        clearTimeout(alarm);
        resolve(worker);
      }
    });
  });
}

await enqueue("warm-up", 2000);
await (await run(2000)).close();
const enqueued = performance.now();
await enqueue("noop", jobs);
const begun = performance.now();
const cpu = process.cpuUsage();
const worker = await run(jobs);
const seconds = (performance.now() - begun) / 1000;
const used = process.cpuUsage(cpu);
await worker.close();
await queue.close();
console.log(JSON.stringify({
  completed: jobs,
  cpu_us: (used.user + used.system) / jobs,
  processed_per_second: jobs / seconds,
  enqueued_per_second: (jobs * 1000) / (begun - enqueued),
  version: (await import("bullmq/package.json", { with: { type: "json" } }).catch(() => null))?.default?.version ?? "5",
}));
