// A worker elsewhere: it does `tool` tasks over gRPC, and never touches Redis. npm install && node worker.mjs [TASKS]
// The service must run with [tasks.tool] handler = "remote". It ends after so many TASKS, or never.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const ROOT = process.env.FETCHBOX_SOURCE ?? fileURLToPath(new URL("../../", import.meta.url));
const definition = await protoLoader.load("fetchbox/worker/v1/worker_service.proto", {
  includeDirs: [`${ROOT}/proto`, `${ROOT}/third_party`],
  keepCase: true,
  longs: Number,
  arrays: true,
});
const { WorkerService } = grpc.loadPackageDefinition(definition).fetchbox.worker.v1;
const client = new WorkerService(process.env.FETCHBOX_WORKER ?? "127.0.0.1:50052", grpc.credentials.createInsecure());
const worker_id = `node-${randomUUID()}`; // new at every start
const running = new Map(); // claim -> AbortController
const GONE = grpc.status.ABORTED; // the claim is lost, or its job was canceled

function call(method, request) {
  return new Promise((resolve, reject) => {
    client[method]({ worker_id, ...request }, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

/** The work: the text in upper case, word by word. */
async function work(payload, report, signal) {
  if (typeof payload.text !== "string") throw new Error("`text` must be a string");
  const words = payload.text.split(" ");
  for (const [index, word] of words.entries()) {
    await sleep(payload.pause_ms ?? 0, undefined, { signal });
    await report("token", { text: `${word.toUpperCase()} ` });
    await report("progress", { done: index + 1, total: words.length });
  }
  return { words: words.length };
}

async function run({ claim, queued_task }) {
  const abort = new AbortController();
  running.set(claim, abort);
  let number = 0; // events of a claim are numbered, so that a report may be repeated
  const report = (type, data) =>
    call("ReportEvents", { claim, first: ++number, events: [{ type, data: Buffer.from(JSON.stringify(data)) }] });
  try {
    const result = await work(JSON.parse(queued_task.payload), report, abort.signal);
    return await call("CompleteTask", { claim, result: Buffer.from(JSON.stringify(result)) });
  } catch (error) {
    if (abort.signal.aborted || error.code === GONE) return { outcome: "given up" };
    const failure_message = String(error.message).slice(0, 1000);
    return await call("FailTask", { claim, failure_code: "VALIDATION_PAYLOAD", failure_message });
  } finally {
    running.delete(claim);
  }
}

/** Renews the lease three times before it lapses, and stops what was canceled. */
async function beat(seconds, ended) {
  while (!ended.aborted) {
    try {
      const { canceled } = await call("Heartbeat", {});
      for (const claim of canceled) running.get(claim)?.abort();
    } catch (error) {
      if (error.code !== GONE) console.error(error.message); // tried again
      else for (const abort of running.values()) abort.abort();
    }
    await sleep((seconds * 1000) / 3, undefined, { signal: ended }).catch(() => {});
  }
}

const most = Number(process.argv[2] ?? Infinity);
const ended = new AbortController();
let beating;
for (let done = 0; done < most; ) {
  const max_tasks = Math.min(4, most - done);
  const { tasks, lease } = await call("ClaimTasks", { max_tasks, wait: { seconds: 20 }, kinds: ["tool"] }).catch((error) => {
    console.error(error.details ?? error.message);
    process.exit(1);
  });
  beating ??= beat(lease.seconds + lease.nanos / 1e9, ended.signal);
  for (const [index, { outcome }] of (await Promise.all(tasks.map(run))).entries()) {
    console.log(tasks[index].queued_task.job_id, outcome);
  }
  done += tasks.length;
}
ended.abort();
await beating;
client.close();
