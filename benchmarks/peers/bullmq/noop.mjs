// BullMQ's side of benchmarks/lane.py: the same number of no-op jobs on the same Redis, one worker process.
// usage: node noop.mjs PORT JOBS SLOTS TIMEOUT_SECONDS; prints one line of JSON.
import { performance } from "node:perf_hooks";
import { Queue, Worker } from "bullmq";

const [port, jobs, slots, timeout] = process.argv.slice(2).map(Number);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const WARM_UP = 2000;
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

/** Bytes of a job: its hash, and its share of the list or set that it is in. */
async function bytes(index) {
  const client = await queue.client;
  const usage = (key) => client.call("MEMORY", "USAGE", key, "SAMPLES", "0");
  const [list, count] = [`bull:noop:${index}`, await queue.getJobCounts(index === "wait" ? "waiting" : index)];
  const own = await usage(`bull:noop:${WARM_UP + Math.ceil(jobs / 2)}`);
  return own + (await usage(list)) / Object.values(count)[0];
}

await enqueue("warm-up", WARM_UP);
await (await run(WARM_UP)).close();
const enqueued = performance.now();
await enqueue("noop", jobs);
const begun = performance.now();
const queued = await bytes("wait");
const started = performance.now();
const cpu = process.cpuUsage();
const worker = await run(jobs);
const seconds = (performance.now() - started) / 1000;
const used = process.cpuUsage(cpu);
const finished = await bytes("completed");
await worker.close();
await queue.close();
console.log(JSON.stringify({
  completed: jobs,
  cpu_us: (used.user + used.system) / jobs,
  processed_per_second: jobs / seconds,
  queued_bytes: queued,
  job_bytes: finished,
  enqueued_per_second: (jobs * 1000) / (begun - enqueued),
  version: (await import("bullmq/package.json", { with: { type: "json" } }).catch(() => null))?.default?.version ?? "5",
}));
